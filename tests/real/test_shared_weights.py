"""The commands of the issue, on real weights, give networks that predict as they should on real images."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

import surgeon
from surgeon.layers.surgical import surgical_layers
from surgeon.measuring.engine import evaluate
from surgeon.metrics import Metrics
from surgeon.models.catalog import IMAGENET_MEAN, IMAGENET_STD
from tests.cli.running import done
from tests.real.conftest import first_images

COMMANDS = {
    "r20": "convert cifar-resnet20 --weights ../shared/data/weights/resnet20-12fca82f.th "
    "--bn example-weighted -o out/r20",
    "lite0": "convert tf_efficientnet_lite0 --weights ../shared/data/weights/tf_efficientnet_lite0.safetensors "
    "--bn example-weighted -o out/lite0",
}
LAYERS = {"r20": 19, "lite0": 49}


@pytest.fixture(scope="module")
def converted(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the checkpoints, written by the commands exactly as the issue has them."""
    root = tmp_path_factory.mktemp("issue")
    (root / "shared").symlink_to(shared)
    (root / "main").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root / "main")
        for name, command in COMMANDS.items():
            assert done(*shlex.split(command)).stdout == f"out/{name}\n"
    return root / "main" / "out"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_checkpoint_verifies_and_names_its_weights(name: str, converted: Path, shared: Path) -> None:
    assert f"{LAYERS[name]} layers rewritten" in done("verify", converted / name).stdout
    weights = shared.parent / shlex.split(COMMANDS[name])[3].removeprefix("../")
    record = json.loads((converted / name / "surgery.json").read_text())
    assert record["base_weights"] == {
        "origin": weights.name,
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
    }


def at_alpha(model: nn.Module, alpha: float) -> nn.Module:
    for layer in surgical_layers(model).values():
        layer.set_alpha(alpha)
    return model


def logits(model: nn.Module, images: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([model(batch) for batch in images.split(10)])


# --- CIFAR-10


def cifar(image: Image.Image) -> Tensor:
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return (torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 - mean) / std


@pytest.fixture(scope="module")
def images_and_labels(shared: Path) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    images, labels = first_images("cifar10/test-*.parquet", 5000, cifar)
    return images.contiguous(memory_format=torch.channels_last), labels


@pytest.fixture(scope="module")
def resnet20(converted: Path) -> nn.Module:
    return surgeon.load(converted / "r20").to(memory_format=torch.channels_last)


@pytest.fixture(scope="module")
def scores(resnet20: nn.Module, images_and_labels: tuple[Tensor, Tensor]) -> dict[float, Metrics]:
    """By alpha, on the first 1,000 test images."""
    images, labels = (column[:1000] for column in images_and_labels)
    return {alpha: evaluate(at_alpha(resnet20, alpha), [(images, labels)]) for alpha in (0.0, 0.05, 0.1)}


def test_example_weighting_lowers_the_cross_entropy(scores: dict[float, Metrics]) -> None:
    assert scores[0.05].cross_entropy < 0.95 * scores[0.0].cross_entropy
    assert scores[0.1].cross_entropy < scores[0.05].cross_entropy


def test_a_little_of_it_costs_no_accuracy(scores: dict[float, Metrics]) -> None:
    assert scores[0.05].accuracy >= scores[0.0].accuracy > 0.9
    assert scores[0.1].accuracy >= scores[0.0].accuracy - 0.01


def test_the_published_numbers_at_alpha_one_tenth(
    resnet20: nn.Module, images_and_labels: tuple[Tensor, Tensor]
) -> None:
    images, labels = images_and_labels
    found = evaluate(at_alpha(resnet20, 0.1), zip(images.split(250), labels.split(250), strict=True))
    assert found.images == 5000
    assert found.cross_entropy == pytest.approx(0.3275, abs=0.0005)
    # One image either way: another processor may round a near tie differently.
    assert found.accuracy == pytest.approx(0.9134, abs=0.00021)


def test_alpha_that_was_converted_is_alpha_that_was_set(
    converted: Path, resnet20: nn.Module, images_and_labels: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    done("convert", converted / "r20", "--bn", "example-weighted:alpha=0.05", "-o", tmp_path / "out")
    model = surgeon.load(tmp_path / "out").to(memory_format=torch.channels_last)
    images = images_and_labels[0][:50]
    assert torch.equal(logits(model, images), logits(at_alpha(resnet20, 0.05), images))


# --- ImageNet


@pytest.fixture(scope="module")
def plain_lite0(shared: Path) -> nn.Module:
    model = timm.create_model("tf_efficientnet_lite0").eval()
    model.load_state_dict(load_file(shared / "data" / "weights" / "tf_efficientnet_lite0.safetensors"))
    return model.to(memory_format=torch.channels_last)


def test_the_identity_setting_is_plain_timm_to_the_bit(converted: Path, plain_lite0: nn.Module) -> None:
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=plain_lite0))
    images, labels = first_images("imagenet-val-1k/validation-*.parquet", 100, transform)
    images = images.contiguous(memory_format=torch.channels_last)
    model = surgeon.load(converted / "lite0").to(memory_format=torch.channels_last)
    expected = logits(plain_lite0, images)
    assert torch.equal(logits(model, images), expected)
    assert (expected.argmax(1) == labels).double().mean() > 0.65  # 73.4% of all 1,000
    moved = logits(at_alpha(model, 0.01), images[:10])
    assert torch.isfinite(moved).all()
    assert not torch.equal(moved, expected[:10])
