"""The consistency loss of AugMix."""

from __future__ import annotations

import math

import pytest
import torch

from surgeon.losses.jensen_shannon import jensen_shannon
from tests.helpers import randn


@pytest.mark.parametrize("number", [2, 3, 5])
def test_is_the_direct_formula(number: int) -> None:
    logits = [3 * randn(7, 10, seed=seed) for seed in range(number)]
    probabilities = torch.stack([one.double().softmax(-1) for one in logits])
    mean = probabilities.mean(0)
    direct = (probabilities * (probabilities / mean).log()).sum(-1).mean()
    assert float(jensen_shannon(logits)) == pytest.approx(float(direct), rel=1e-5)


def test_is_zero_for_equal_predictions_and_has_a_largest_value() -> None:
    logits = randn(4, 6)
    assert float(jensen_shannon([logits, logits + 5, logits])) == pytest.approx(0, abs=1e-6)
    apart = [torch.full((2, 3), -50.0).index_fill(1, torch.tensor([label]), 50.0) for label in range(3)]
    assert float(jensen_shannon(apart)) == pytest.approx(math.log(3), rel=1e-6)


@pytest.mark.parametrize("extreme", [1e4, 1e30, -math.inf])
def test_extreme_logits_give_numbers_and_gradients(extreme: float) -> None:
    certain = torch.zeros(2, 4)
    certain[:, 1] = extreme
    logits = [certain.requires_grad_(), randn(2, 4).requires_grad_(), randn(2, 4, seed=1).requires_grad_()]
    loss = jensen_shannon(logits)
    loss.backward()
    assert 0 < float(loss.detach()) <= math.log(3)
    assert all(bool(one.grad.isfinite().all()) for one in logits if one.grad is not None)


def test_half_precision_is_computed_in_single() -> None:
    logits = [randn(3, 5, seed=seed) for seed in range(3)]
    half = jensen_shannon([one.half() for one in logits])
    assert half.dtype == torch.float32
    assert float(half) == pytest.approx(float(jensen_shannon(logits)), rel=1e-2)


def test_one_prediction_is_apart_from_nothing() -> None:
    with pytest.raises(ValueError, match="two predictions"):
        jensen_shannon([randn(1, 2)])
