"""An exported network of real weights predicts real photographs as PyTorch does, however many come at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch

import surgeon
from tests.cli.running import document, done
from tests.real.conftest import first_images

NAME = "tf_efficientnet_lite0"
IMAGES = "imagenet-val-1k"


@pytest.fixture(scope="module")
def lite0(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lite0") / "net"
    weights = shared / "data" / "weights" / f"{NAME}.safetensors"
    done("convert", NAME, "--weights", weights, "--bn", "example-weighted:alpha=0.05", "-o", folder)
    return folder


@pytest.mark.long
def test_onnx_of_example_weighting(lite0: Path, shared: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    file = tmp_path / "lite0.onnx"
    told = document("export", lite0, "--to", "onnx", "-o", file, "--data", shared / "data" / IMAGES)
    assert (told["images"], told["batch_sizes"], told["notes"]) == (64, [1, 7, 64], [])
    model = surgeon.load(lite0)
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model))
    images, _ = first_images(f"{IMAGES}/validation-*.parquet", 64, transform)
    with torch.inference_mode():
        expected = model(images)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for size in (1, 7, 64):
        parts = [session.run(None, {"images": some.numpy()})[0] for some in images.split(size)]
        found = torch.cat([torch.from_numpy(part) for part in parts])
        assert float((found - expected).abs().max()) <= 1e-4
