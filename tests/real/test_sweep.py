"""Sweeps of real networks on real images."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import document

IMAGES = "600"


@pytest.fixture(scope="module")
def resnet20(shared: Path) -> list[str]:
    weights = shared / "data/weights/resnet20-12fca82f.th"
    data = shared / "data/cifar10"
    return ["cifar-resnet20", "--weights", str(weights), "--data", str(data), "--split", "test", "--limit", IMAGES]


def test_the_cross_entropy_of_a_cifar_network_falls_and_most_of_that_is_confidence(resnet20: list[str]) -> None:
    found = document("sweep", *resnet20, "--alpha", "0,0.02,0.1", "--metric", "cross-entropy", "--method", "grid")
    original, chosen = found["settings"]
    assert found["chosen"] == 0.1
    assert chosen["choosing"]["cross_entropy"] < 0.9 * original["choosing"]["cross_entropy"]
    gain = original["choosing"]["cross_entropy"] - chosen["choosing"]["cross_entropy"]
    ranking = original["choosing"]["scaled_cross_entropy"] - chosen["choosing"]["scaled_cross_entropy"]
    assert ranking < 0.5 * gain
    assert "Temperature scaling alone" in found["summary"][1]
    alone = document("eval", *resnet20)["metrics"]
    for figure in ("accuracy", "cross_entropy", "scaled_cross_entropy", "temperature"):
        assert original["choosing"][figure] == alone[figure]


def test_an_alpha_that_does_not_help_is_not_chosen(shared: Path) -> None:
    weights, data = shared / "data/weights/tf_efficientnet_lite0.safetensors", shared / "data/imagenet-val-1k"
    options = ["--alpha", "0,0.05", "--metric", "cross-entropy", "--limit", "32"]
    found = document("sweep", "tf_efficientnet_lite0", "--weights", weights, "--data", data, *options)
    assert found["chosen"] == 0
    assert found["summary"][0].startswith("No alpha beats the original network")


@pytest.mark.parametrize("metric", ["accuracy", "cross-entropy"])
def test_a_race_interpolates_what_a_grid_computes(resnet20: list[str], metric: str) -> None:
    """On so few images values are estimated on all of them, so that both can be compared value by value."""
    sweep = ("sweep", *resnet20, "--alpha", "0:0.2:11", "--metric", metric, "--method")
    race, grid = document(*sweep, "race"), document(*sweep, "grid")
    assert race["interpolation"]["images"] == int(IMAGES)
    assert race["interpolation"]["disagreement"] < 0.02
    assert race["image_forwards"] < 0.45 * grid["image_forwards"]
    of_grid = {point["value"]: point["metrics"] for point in grid["points"]}
    for point in race["points"]:
        computed = of_grid[point["value"]]
        assert point["metrics"]["accuracy"] == pytest.approx(computed["accuracy"], abs=0.006)
        assert point["metrics"]["cross_entropy"] == pytest.approx(computed["cross_entropy"], abs=0.01)
    chosen, best = (of_grid[found["chosen"]] for found in (race, grid))
    assert chosen["accuracy"] >= best["accuracy"] - (0.005 if metric == "accuracy" else 1)
    assert chosen["cross_entropy"] <= best["cross_entropy"] + (0.004 if metric == "cross-entropy" else 1)
