"""CamVid: its classes, its void value, day and dusk; and the figures of a network that has learned nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from surgeon.data.masks import VOID
from surgeon.data.opening import open_data
from surgeon.measuring.preparation import ImageOptions, InferenceRequest, batches_for, prepare
from surgeon.models.sources import load_model
from tests.cli.running import document
from tests.reference.segmentation import MASK_METRICS


@pytest.fixture(scope="module")
def camvid(shared: Path) -> str:
    return str(shared / "data" / "camvid")


def test_classes_void_and_dusk(camvid: str) -> None:
    sizes = {split: len(open_data(camvid, split)) for split in ("train", "validation", "test")}
    assert sizes == {"train": 367, "validation": 101, "test": 233}
    images = open_data(camvid, "test")
    assert images.class_names[:4] == ("sky", "building", "pole", "road")
    assert images.about_masks == "11 classes for each pixel; void is 11 and 255"
    assert len(open_data(camvid, "test", where=["name=0001TP*"])) == 62
    assert len(open_data(camvid, "train", where=["name!=0001TP*"])) == 305
    assert set(np.unique(images.mask(0, (480, 360))).tolist()) <= {VOID, *range(11)}


def test_figures_are_those_of_the_formula(camvid: str) -> None:
    name = "torchvision:lraspp_mobilenet_v3_large"
    options = ("--no-pretrained", "--num-classes", "11", "--input-size", "48", "--limit", "3")
    found = document("eval", name, *options, "--data", camvid)
    assert found["masks"]["size"] == [48, 64]
    loaded = load_model(name, pretrained=False, num_classes=11)
    prepared = prepare(loaded, InferenceRequest(data=camvid, limit=3, images=ImageOptions(input_size=48)))
    (batch,) = batches_for([prepared], prepared.image_set)
    with torch.inference_mode():
        logits = loaded.model.eval()(batch.images)["out"].numpy()
    for metric in ("iou", "accuracy", "cross-entropy", "ece"):
        expected = MASK_METRICS[metric](logits, batch.labels.numpy(), VOID)
        assert found["metrics"][metric.replace("-", "_")] == pytest.approx(expected, abs=1e-5)
