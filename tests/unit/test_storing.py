"""The one rule on when a setting is stored, and how seldom it stores what is no better."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from surgeon.commands.storing import decide, is_beyond_noise
from surgeon.measuring.comparison import gain_of_temperature
from surgeon.metrics import Scores, compare
from surgeon.results import Gain


def gain(difference: float, low: float, high: float, higher_is_better: bool = True) -> Gain:
    metric = "accuracy" if higher_is_better else "cross-entropy"
    return Gain(
        metric=metric, higher_is_better=higher_is_better, images=100, difference=difference, low=low, high=high,
        gained=None, lost=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("measured", "options", "stored", "why"),
    [
        (None, {}, False, "Nothing is stored: the original network is best."),
        (None, {"force": True}, False, "the original network is best"),
        (gain(0.02, 0.01, 0.03), {}, True, "alpha 0.1 is stored: its gain in accuracy is significant, +2.00 points"),
        (gain(-0.2, -0.3, -0.1, False), {}, True, "in cross-entropy is significant, +0.2000 (95%: +0.1000 to +0.3000)"),
        (gain(0.02, -0.01, 0.05), {}, False, "alpha 0.1 is not stored: its gain in accuracy is not significant, +2.00"),
        (
            gain(0.02, -0.01, 0.05),
            {"force": True},
            True,
            "stored because of --force, although its gain in accuracy is not significant",
        ),
        (gain(-0.02, -0.03, -0.01), {}, False, "not stored: its gain in accuracy is negative, -2.00"),
        (gain(0.2, 0.1, 0.3, False), {}, False, "not stored: its gain in cross-entropy is negative, -0.2000"),
        (gain(0.02, -math.inf, math.inf), {}, False, "not significant"),
        (gain(0.02, 0.005, 0.035), {"tried": 20}, False, "95% for the best of 20: -0.31 to +4.31"),
        (gain(0.02, 0.012, 0.028), {"tried": 20}, True, "gain in accuracy is significant"),
        (gain(-math.inf, -math.inf, -math.inf, False), {"tried": 20}, True, "gain in cross-entropy is significant"),
        (gain(math.nan, -math.inf, math.inf), {}, False, "not significant"),
    ],
)
def test_what_is_stored_and_why(measured: Gain | None, options: dict[str, Any], stored: bool, why: str) -> None:
    decision = decide("alpha 0.1", measured, **options)
    assert decision.stored is stored
    assert why in decision.reason


def test_several_values_widen_the_interval_as_bonferroni_says() -> None:
    """The quantile of 1 - 0.025/20 is 3.0233, that of 0.975 1.9600."""
    edge = 3.0233 / 1.9600
    assert is_beyond_noise(gain(1.001 * edge, 1.001 * edge - 1, 9), tried=20)
    assert not is_beyond_noise(gain(0.999 * edge, 0.999 * edge - 1, 9), tried=20)
    assert is_beyond_noise(gain(-1.001 * edge, -9, -1.001 * edge + 1, False), tried=20)


@pytest.mark.parametrize("likeness", [0.0, 0.9])
def test_the_best_of_many_values_that_are_no_better_is_hardly_ever_stored(likeness: float) -> None:
    """Without the correction it would be stored up to 40 times of 100 where values are unlike each other."""
    random = np.random.default_rng(0)
    images, values, trials = 400, 20, 600
    stored = uncorrected = 0
    for _ in range(trials):
        shared = random.normal(size=(images, 1))
        differences = likeness**0.5 * shared + (1 - likeness) ** 0.5 * random.normal(size=(images, values))
        best = differences[:, differences.mean(axis=0).argmax()]
        compared = compare(best, np.zeros(images), higher_is_better=True)
        found = gain(compared.difference, compared.low, compared.high)
        stored += is_beyond_noise(found, tried=values)
        uncorrected += is_beyond_noise(found)
    assert stored / trials <= 0.04
    assert uncorrected / trials > 0.04


def scores_of(logits: torch.Tensor, labels: torch.Tensor, first: int = 0) -> Scores:
    scores = Scores()
    scores.update(logits, labels, torch.arange(first, first + len(labels)))
    return scores


def drawn(sharpness: float, images: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that are too large by a factor: the best temperature is that factor."""
    generator = torch.Generator().manual_seed(seed)
    honest = 2 * torch.randn(images, 5, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(honest.softmax(1), 1, generator=generator)[:, 0]
    return sharpness * honest, labels


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, temperature: float) -> float:
    return float(torch.nn.functional.cross_entropy(logits / temperature, labels))


def test_the_gain_of_a_temperature_is_the_difference_of_the_cross_entropies() -> None:
    logits, labels = drawn(2.5, 3000, 0)
    found = gain_of_temperature(scores_of(logits, labels))
    best = minimize_scalar(lambda t: cross_entropy(logits, labels, t), bounds=(0.2, 10), method="bounded")
    assert found.difference == pytest.approx(best.fun - cross_entropy(logits, labels, 1.0), abs=1e-6)
    assert found.better
    other, their_labels = drawn(2.5, 2000, 1)
    held_back = gain_of_temperature(scores_of(other, their_labels), fitted_on=scores_of(logits, labels))
    expected = cross_entropy(other, their_labels, best.x) - cross_entropy(other, their_labels, 1.0)
    assert held_back.difference == pytest.approx(expected, abs=1e-6)
    assert held_back.better


def test_a_temperature_that_a_network_does_not_need_is_seldom_stored() -> None:
    stored = sum(
        decide("a temperature", gain_of_temperature(scores_of(*drawn(1.0, 500, seed)))).stored for seed in range(40)
    )
    assert stored <= 2
