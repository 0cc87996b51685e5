"""Intervals against scipy, and comparisons by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from surgeon.core.errors import SurgeonError
from surgeon.metrics import (
    ImageScores,
    Metric,
    PairedComparison,
    Scores,
    compare,
    compare_scores,
    fit_temperature,
    metrics,
    wilson_interval,
)
from surgeon.metrics.calibration import expected_calibration_error
from tests.helpers import randn

BY_GROUPS = [name for name in metrics if metrics[name].per_image is None]


def two_networks(images: int, seed: int, sharpness: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of two networks that see the same images with noise of their own, and the labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(images, 10, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    first, second = ((logits + 0.7 * torch.randn(images, 10, generator=generator)) * factor for factor in sharpness)
    return first, second, labels


def scored(logits: Tensor, labels: Tensor) -> Scores:
    scores = Scores()
    scores.update(logits, labels, range(len(labels)))
    return scores


def compared(name: str, first: Tensor, second: Tensor, labels: Tensor) -> PairedComparison:
    return compare_scores(metrics[name], scored(first, labels), scored(second, labels))


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
    found = compare_scores(metrics["accuracy"], candidate, baseline)
    assert (found.images, found.gained, found.lost) == (3, 3, 0)


@pytest.mark.parametrize("name", BY_GROUPS)
def test_metrics_that_are_no_means_need_the_same_images(name: str) -> None:
    first, second, labels = two_networks(50, 0, (1, 1))
    with pytest.raises(SurgeonError, match=rf"different images \(50 and 49\) cannot be compared by {name}"):
        compare_scores(metrics[name], scored(first, labels), scored(second[:49], labels[:49]))


@pytest.mark.parametrize("name", BY_GROUPS)
def test_equal_networks_differ_by_exactly_nothing(name: str) -> None:
    first, _, labels = two_networks(300, 0, (1, 1))
    assert compared(name, first, first, labels) == PairedComparison(300, 0.0, 0.0, 0.0, None, None)


def cross_entropy_at_best(logits: Tensor, labels: Tensor) -> float:
    return fit_temperature(logits, labels).cross_entropy


def calibration_error(logits: Tensor, labels: Tensor) -> float:
    confidence, predicted = logits.double().softmax(1).max(1)
    return expected_calibration_error(confidence.numpy(), (predicted == labels).numpy())


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("name", "direct"), [("scaled-cross-entropy", cross_entropy_at_best), ("ece", calibration_error)]
)
def test_jackknife_intervals_are_as_wide_as_those_of_the_bootstrap(name: str, direct: Any, seed: int) -> None:
    first, second, labels = two_networks(1500, seed, (1.5, 2.5))
    random = np.random.default_rng(0)
    draws = [torch.from_numpy(random.integers(1500, size=1500)) for _ in range(100)]
    bootstrap = [direct(first[draw], labels[draw]) - direct(second[draw], labels[draw]) for draw in draws]
    found = compared(name, first, second, labels)
    assert found.difference == pytest.approx(direct(first, labels) - direct(second, labels), abs=1e-5)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * np.std(bootstrap, ddof=1), rel=0.35)
    assert (found.gained, found.lost) == (None, None)


@pytest.mark.parametrize("name", BY_GROUPS)
def test_intervals_cover_the_truth(name: str) -> None:
    """The two networks are exchangeable, so that every metric truly differs by nothing."""
    comparisons = [compared(name, *two_networks(200, seed, (1.5, 1.5))) for seed in range(25)]
    assert 21 <= sum(comparison.within_noise for comparison in comparisons) <= 25


def test_a_real_difference_is_found() -> None:
    first, second, labels = two_networks(1000, 0, (1.0, 3.0))
    assert compared("ece", first, second, labels).high < 0
    assert compared("scaled-cross-entropy", first, second + 3 * randn(1000, 10), labels).high < 0


def test_temperatures_that_were_fitted_elsewhere() -> None:
    first, second, labels = two_networks(800, 0, (1.5, 2.5))
    chosen = scored(first[:300], labels[:300]), scored(second[:300], labels[:300])
    confirmed = scored(first[300:], labels[300:]), scored(second[300:], labels[300:])
    found = compare_scores(metrics["scaled-cross-entropy"], *confirmed, chosen)
    at_fixed = [
        torch.nn.functional.cross_entropy(
            logits[300:].double() / scores.images().scaled.temperature, labels[300:], reduction="none"
        ).numpy()
        for logits, scores in zip((first, second), chosen, strict=True)
    ]
    expected = compare(*at_fixed, higher_is_better=False)  # at fixed temperatures it is a mean over images
    assert found.difference == pytest.approx(expected.difference, abs=1e-5)
    assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=0.35)


def test_images_of_one_group_prove_nothing() -> None:
    found = compared("ece", torch.eye(3)[:1], 2 * torch.eye(3)[:1], torch.tensor([1]))
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert found.within_noise


def test_infinite_scaled_cross_entropies() -> None:
    first, second, labels = two_networks(100, 0, (1, 1))
    broken = first.clone()
    broken[7] = math.nan
    worse = compared("scaled-cross-entropy", broken, second, labels)
    assert (worse.difference, worse.low, worse.high) == (math.inf, math.inf, math.inf)
    assert compared("scaled-cross-entropy", second, broken, labels).high == -math.inf
    both = compared("scaled-cross-entropy", broken, broken.roll(1, dims=0), labels)
    assert (both.difference, both.low, both.high) == (0, 0, 0)


def metric_of(compute: Callable[[ImageScores], float | None]) -> Metric:
    return Metric("mine", "", higher_is_better=True, compute=compute, per_image=None)


def test_metrics_of_others() -> None:
    first, second, labels = two_networks(400, 0, (1, 1))
    scores = scored(first, labels), scored(second, labels)
    mean = compare_scores(metric_of(lambda images: float(images.correct.mean())), *scores)
    expected = compare_scores(metrics["accuracy"], *scores)
    assert mean.difference == pytest.approx(expected.difference)
    assert mean.high - mean.low == pytest.approx(expected.high - expected.low, rel=0.35)
    not_a_number = compare_scores(metric_of(lambda _: math.nan), *scores)
    assert math.isnan(not_a_number.difference)
    assert not_a_number.within_noise
    sometimes = compare_scores(metric_of(lambda images: 1.0 if len(images) == 400 else math.nan), *scores)
    assert (sometimes.low, sometimes.high) == (-math.inf, math.inf)
    with pytest.raises(SurgeonError, match="'mine' has no value"):
        compare_scores(metric_of(lambda _: None), *scores)
