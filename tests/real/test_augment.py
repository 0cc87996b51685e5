"""Augmentations of real photographs: pictures that can be drawn, and affinities that make sense."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest
from PIL import Image

from tests.cli.running import document, done


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.getbasetemp() / "datasets-cache")


@pytest.mark.parametrize(
    ("name", "data", "size"),
    [("vh-mixup", "flowers102", 224), pytest.param("all", "cifar10", 32, marks=pytest.mark.long)],
)
def test_preview(name: str, data: str, size: int, shared: Path, tmp_path: Path) -> None:
    outcome = done("preview", name, "--data", shared / "data" / data, "--count", "8", "-o", tmp_path / "preview.png")
    assert f"(train), {size} px" in outcome.stderr
    assert Image.open(tmp_path / "preview.png").width > 1000


@pytest.mark.long
def test_affinity_of_a_network_that_knows_flips_and_crops(shared: Path) -> None:
    specs = ["standard", "colour-jitter", "strong", "mixup", "random-pixels", "gaussian-noise"]
    weights = shared / "data" / "weights" / "resnet20-12fca82f.th"
    result = document(
        *("affinity", "cifar-resnet20", "--weights", weights, "--data", shared / "data" / "cifar10", "--limit", "500"),
        *(part for spec in specs for part in ("--augment", spec)),
    )
    found = {row["augment"]: row["difference"] for row in result["augments"]}
    assert result["clean_accuracy"] > 0.88
    assert min(found["standard"], found["colour-jitter"]) > -0.08
    assert found["strong"] < found["standard"] - 0.1
    assert found["random-pixels"] < found["mixup"] - 0.2
    assert found["gaussian-noise"] < -0.6
