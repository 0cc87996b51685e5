"""Example weighting, ghost and batch-group normalisation against outputs of their authors' own code."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from surgeon.layers.surgical import SurgicalNorm
from surgeon.surgery.apply import convert
from tests.golden.vectors import needs_vectors, vectors

# How each of the authors' layers is written with ours.
REWRITES = {
    "batch": "ghost:size=64",  # one group that takes the whole batch
    "ghost4": "ghost:size=4",
    "ghost2": "ghost:size=2",
    "batchgroup_g4_e2": "batch-group:channel_groups=4,examples_per_group=2",
    "group_g2": "example-weighted:alpha=1",
}


GOLDEN = vectors("summers/")
NAMES = list(GOLDEN)
EVALUATIONS = [name for name in NAMES if "/eval_alpha_" in name]
CASES = sorted({name.partition("/")[0] for name in NAMES})

pytestmark = needs_vectors


def vector(name: str) -> Tensor:
    return GOLDEN[name]


def layer_for(case: str) -> SurgicalNorm:
    """Our layer with the parameters and statistics of a case."""
    channels = len(vector(f"{case}/weight"))
    original = nn.GroupNorm(2, channels) if case == "group_g2" else nn.BatchNorm2d(channels)
    layer = convert(original, REWRITES[case])
    assert isinstance(layer, SurgicalNorm)
    layer.momentum = 0.01  # the authors decay E[x] and E[x^2] by 0.99
    layer.num_batches_tracked.fill_(1)
    with torch.no_grad():
        for ours, theirs in {"weight": "weight", "bias": "bias", "running_mean": "mean", "running_var": "var"}.items():
            getattr(layer, ours).copy_(vector(f"{case}/{theirs}"))
    return layer


def assert_equal(actual: Tensor, name: str) -> None:
    torch.testing.assert_close(actual, vector(name), rtol=0, atol=1e-5)


def test_every_case_is_covered() -> None:
    assert set(CASES) == set(REWRITES)
    assert len(EVALUATIONS) == 14


@pytest.mark.parametrize("name", EVALUATIONS)
@pytest.mark.parametrize("with_gradients", [False, True], ids=["kernel", "torch"])
def test_evaluation(name: str, with_gradients: bool) -> None:
    case, _, alpha = name.partition("/eval_alpha_")
    layer = layer_for(case).eval()
    layer.set_alpha(float(alpha))
    with torch.set_grad_enabled(with_gradients):
        assert_equal(layer(vector(f"{case}/x")).detach(), name)


@pytest.mark.parametrize("name", EVALUATIONS)
def test_evaluation_with_one_weight_per_channel(name: str) -> None:
    case, _, alpha = name.partition("/eval_alpha_")
    layer = layer_for(case).eval()
    layer.set_alpha([float(alpha)] * layer.num_features)
    with torch.no_grad():
        assert_equal(layer(vector(f"{case}/x")), name)


@pytest.mark.parametrize("case", CASES)
def test_training(case: str) -> None:
    layer = layer_for(case).train()
    assert_equal(layer(vector(f"{case}/x")).detach(), f"{case}/train")
    assert_equal(layer.running_mean, f"{case}/train_mean_after")
    assert_equal(layer.running_var, f"{case}/train_var_after")
