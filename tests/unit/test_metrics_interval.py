"""Intervals against scipy, and comparisons by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from surgeon.errors import SurgeonError
from surgeon.metrics import Scores, compare, compare_scores, metrics, wilson_interval


@pytest.mark.parametrize(("correct", "images"), [(0, 1), (1, 1), (0, 50), (50, 50), (1, 7), (4574, 5000)])
def test_wilson_interval(correct: int, images: int) -> None:
    expected = stats.binomtest(correct, images).proportion_ci(0.95, method="wilson")
    assert wilson_interval(correct, images) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_no_proportion_of_nothing() -> None:
    with pytest.raises(SurgeonError, match="0 of 0"):
        wilson_interval(0, 0)


def test_paired_cross_entropies() -> None:
    random = np.random.default_rng(0)
    baseline = random.exponential(size=500)
    candidate = baseline + random.normal(-0.02, 0.1, 500)
    found = compare(candidate, baseline, higher_is_better=False)
    differences = candidate - baseline
    expected = stats.norm.interval(0.95, differences.mean(), stats.sem(differences))
    assert (found.low, found.high) == pytest.approx(expected)
    assert found.difference == pytest.approx(differences.mean())
    assert (found.gained, found.lost) == ((differences < 0).sum(), (differences > 0).sum())
    assert not found.within_noise


def test_gained_and_lost_images() -> None:
    candidate = np.array([True, True, True, False, True])
    baseline = np.array([True, False, False, True, True])
    found = compare(candidate, baseline, higher_is_better=True)
    assert (found.gained, found.lost, found.images) == (2, 1, 5)
    assert found.difference == pytest.approx(0.2)
    assert found.within_noise


@pytest.mark.parametrize("shift", [0.0, 0.1, -0.3])
def test_equal_differences_have_an_exact_interval(shift: float) -> None:
    found = compare(np.full(1000, shift), np.zeros(1000), higher_is_better=True)
    assert found.low == found.high == found.difference == shift
    assert found.within_noise == (shift == 0)


def test_one_image_proves_nothing() -> None:
    found = compare(np.array([1.0]), np.array([0.0]), higher_is_better=True)
    assert (found.difference, found.low, found.high) == (1, -math.inf, math.inf)
    assert found.within_noise


def test_infinite_cross_entropies() -> None:
    finite, infinite = np.array([1.0, 2.0, 3.0]), np.array([1.0, math.inf, 4.0])
    worse = compare(infinite, finite, higher_is_better=False)
    assert (worse.difference, worse.low, worse.high) == (math.inf, math.inf, math.inf)
    assert (worse.gained, worse.lost) == (0, 2)
    assert compare(finite, infinite, higher_is_better=False).high == -math.inf
    assert compare(infinite, infinite, higher_is_better=False).difference == 0
    both = compare(np.array([math.inf, 0.0]), np.array([0.0, math.inf]), higher_is_better=False)
    assert math.isnan(both.difference)
    assert both.within_noise


def test_different_numbers_of_images_are_refused() -> None:
    with pytest.raises(SurgeonError, match="in pairs"):
        compare(np.zeros(3), np.zeros(4), higher_is_better=True)


def test_scores_are_compared_on_the_images_that_both_have() -> None:
    logits, labels = torch.eye(6), torch.tensor([0, 1, 2, 3, 4, 5])
    candidate, baseline = Scores(), Scores()
    candidate.update(logits[:5], labels[:5], range(5))
    baseline.update(logits[2:].roll(1, dims=1), labels[2:], range(2, 6))
    found = compare_scores(metrics["accuracy"], candidate.images(), baseline.images())
    assert (found.images, found.gained, found.lost) == (3, 3, 0)
    with pytest.raises(SurgeonError, match="'ece' is not a mean over images"):
        compare_scores(metrics["ece"], candidate.images(), baseline.images())
