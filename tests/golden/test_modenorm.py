"""Mode normalisation against outputs of the authors' own code."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from surgeon.norms.mode.layer import ModeStatistics
from tests.golden.vectors import needs_vectors, vectors

EPS = 1e-5


GOLDEN = {modes: vectors(f"modenorm_k{modes}/") for modes in (2, 3)}

pytestmark = needs_vectors


def layer_for(modes: int) -> ModeStatistics:
    golden = GOLDEN[modes]
    layer = ModeStatistics(len(golden["weight"]), modes)
    layer.load_state_dict({"gate.weight": golden["gate_weight"], "gate.bias": golden["gate_bias"]}, strict=False)
    layer.set_moments(golden["running_x"], golden["running_x2"])
    return layer


def assert_equal(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual.detach(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("modes", GOLDEN)
@pytest.mark.parametrize("with_gradients", [False, True])
def test_training(modes: int, with_gradients: bool) -> None:
    golden = GOLDEN[modes]
    with torch.set_grad_enabled(with_gradients):
        y = layer_for(modes).normalise_batch(golden["x"], golden["weight"], golden["bias"], EPS)
    assert_equal(y, golden["train"])


@pytest.mark.parametrize("modes", GOLDEN)
def test_evaluation(modes: int) -> None:
    golden = GOLDEN[modes]
    layer = layer_for(modes)
    assert_equal(layer.running_x, golden["running_x"])
    assert_equal(layer.running_x2, golden["running_x2"])
    assert_equal(layer.normalise_running(golden["x"], golden["weight"], golden["bias"], EPS), golden["eval"])
