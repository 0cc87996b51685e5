"""`surgeon.predict` with a real ImageNet network on real photographs, against plain timm."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config

import surgeon
from surgeon.checkpoint import open_model

PHOTOGRAPHS = 24


def test_photographs_are_what_plain_timm_says(shared: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (file,) = (shared / "data").glob("imagenet-val-1k/*.parquet")
    table = parquet.read_table(file).slice(0, PHOTOGRAPHS).to_pydict()
    paths = [tmp_path / f"{number}.jpg" for number in range(PHOTOGRAPHS)]
    for path, image in zip(paths, table["image"], strict=True):
        path.write_bytes(image["bytes"])
    weights = shared / "data" / "weights" / "tf_efficientnet_lite0.safetensors"
    model = open_model("tf_efficientnet_lite0", weights=weights).model
    found = surgeon.predict(model, paths, top=3)

    plain = timm.create_model("tf_efficientnet_lite0", checkpoint_path=str(weights)).eval()
    transform = create_transform(**resolve_data_config({}, model=plain))
    images = [transform(Image.open(BytesIO(image["bytes"])).convert("RGB")) for image in table["image"]]
    with torch.inference_mode():
        expected, places = plain(torch.stack(images)).double().softmax(1).topk(3)
    assert [[one.output for one in image.classes] for image in found.images] == places.tolist()
    np.testing.assert_allclose(
        [[one.probability for one in image.classes] for image in found.images], expected, rtol=1e-3, atol=1e-6
    )
    right = [image.classes[0].output == label for image, label in zip(found.images, table["label"], strict=True)]
    assert np.mean(right) > 0.5
    assert found.class_names_from == "imagenet-1k"
