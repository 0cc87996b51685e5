"""Intervals against scipy, and comparisons by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from surgeon.core.errors import SurgeonError
from surgeon.core.specs import Options
from surgeon.metrics import (
    ImageScores,
    Metric,
    PairedComparison,
    Scores,
    compare,
    compare_scores,
    figure_interval,
    fit_temperature,
    metrics,
    plain,
    proportion_interval,
)
from surgeon.metrics.calibration import expected_calibration_error
from tests.helpers import randn

BY_GROUPS = [name for name in metrics if metrics[name].per_image is None and not metrics[name].only_masks]


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
def test_the_interval_of_a_proportion(correct: int, images: int) -> None:
    expected = stats.binomtest(correct, images).proportion_ci(0.95, method="exact")
    assert proportion_interval(correct, images) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_no_proportion_of_nothing() -> None:
    with pytest.raises(SurgeonError, match="0 of 0"):
        proportion_interval(0, 0)


def test_paired_cross_entropies() -> None:
    random = np.random.default_rng(0)
    baseline = random.exponential(size=500)
    candidate = baseline + random.normal(-0.02, 0.1, 500)
    found = compare(candidate, baseline, higher_is_better=False)
    differences = candidate - baseline
    low, high = stats.t.interval(0.95, 499, differences.mean(), stats.sem(differences))
    # Cornish and Fisher's correction for skewness, where it makes the interval longer.
    longer = stats.skew(differences) * (1 + 2 * stats.t.ppf(0.975, 499) ** 2) / 6 / math.sqrt(500)
    error = stats.sem(differences)
    assert (found.low, found.high) == pytest.approx((low - max(-longer, 0) * error, high + max(longer, 0) * error))
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


@pytest.mark.parametrize(("gained", "lost", "images"), [(0, 0, 50), (0, 0, 1000), (6, 0, 200), (0, 9, 300), (7, 5, 60)])
def test_paired_proportions_as_bonett_and_price_do(gained: int, lost: int, images: int) -> None:
    """With one discordant image more in each direction (2012, formula 9), but for two concordant ones and Student."""
    baseline = np.arange(images) >= gained
    candidate = np.arange(images) < images - lost
    found = compare(candidate, baseline, higher_is_better=True)
    assert (found.gained, found.lost) == (gained, lost)
    number = images + 4
    shares = (gained + 1) / number, (lost + 1) / number
    centre = shares[0] - shares[1]
    error = math.sqrt((sum(shares) - centre**2) / (number - 1))
    half = stats.t.ppf(0.975, number - 1) * error
    difference = (gained - lost) / images
    assert found.difference == pytest.approx(difference)
    if gained >= lost:  # skewness makes the other end longer
        assert found.low == pytest.approx(min(centre, difference) - half)
    if gained <= lost:
        assert found.high == pytest.approx(max(centre, difference) + half)


def test_no_discordant_image_is_no_proof_of_equality() -> None:
    """If 7% of all images were discordant, 50 without any would come up once in 38 times."""
    found = compare(np.ones(50, bool), np.ones(50, bool), higher_is_better=True)
    assert found.difference == 0
    assert found.low < -0.05
    assert found.high > 0.05


@pytest.mark.parametrize("images", [50, 200, 1000])
def test_exact_coverage_of_paired_proportions(images: int) -> None:
    """Summed over every number of gained and lost images, for networks that differ on up to 16 of them."""
    most = min(images, 50)
    gained, lost = np.meshgrid(np.arange(most), np.arange(most), indexing="ij")
    inside = gained + lost <= images
    intervals = np.full((2, most, most), math.nan)
    for more, less in np.argwhere(inside):
        candidate, baseline = np.ones(images, bool), np.ones(images, bool)
        baseline[:more], candidate[images - less :] = False, False
        found = compare(candidate, baseline, higher_is_better=True)
        intervals[:, more, less] = found.low, found.high
    low, high = intervals
    for expected_gain, expected_loss in product((0.2, 1, 2, 3, 5, 8), (0, 0.2, 1, 3, 6, 8)):
        shares = expected_gain / images, expected_loss / images
        likelihood = stats.multinomial.pmf(
            np.stack([gained, lost, np.maximum(images - gained - lost, 0)], axis=-1), images, [*shares, 1 - sum(shares)]
        )
        truth = shares[0] - shares[1]
        covered = inside & (low - 1e-12 <= truth) & (truth <= high + 1e-12)
        assert likelihood[covered].sum() >= 0.934, shares


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
def test_intervals_are_about_as_wide_as_those_of_the_bootstrap(name: str, direct: Any, seed: int) -> None:
    first, second, labels = two_networks(1500, seed, (1.5, 2.5))
    random = np.random.default_rng(0)
    draws = [torch.from_numpy(random.integers(1500, size=1500)) for _ in range(100)]
    bootstrap = [direct(first[draw], labels[draw]) - direct(second[draw], labels[draw]) for draw in draws]
    found = compared(name, first, second, labels)
    assert found.difference == pytest.approx(direct(first, labels) - direct(second, labels), abs=1e-5)
    assert 0.75 <= (found.high - found.low) / (2 * 1.96 * np.std(bootstrap, ddof=1)) <= 1.5
    assert (found.gained, found.lost) == (None, None)


@pytest.mark.parametrize("name", list(metrics))
def test_the_interval_of_a_figure_contains_it_and_stays_within_bounds(name: str) -> None:
    metric = metrics[name]
    perfect = 40 * torch.eye(10)
    for logits, labels in ((perfect, torch.arange(10)), (-perfect, torch.arange(10)), two_networks(30, 0, (1, 1))[1:]):
        images = scored(logits, labels).images()
        low, high = figure_interval(metric, images)
        assert metric.bounds[0] <= low <= metric.compute(images) <= high <= metric.bounds[1]
        assert low < high


def test_the_interval_of_an_infinite_figure() -> None:
    images = scored(torch.full((3, 4), math.nan), torch.tensor([0, 1, 2])).images()
    assert figure_interval(metrics["cross-entropy"], images) == (math.inf, math.inf)
    assert figure_interval(metrics["scaled-cross-entropy"], images) == (math.inf, math.inf)
    assert figure_interval(metrics["accuracy"], images) == proportion_interval(0, 3)


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
    assert 1 <= (found.high - found.low) / (expected.high - expected.low) <= 1.5  # with imagined images, in groups


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
    return Metric("mine", "", "", Options, higher_is_better=True, compute=compute, per_image=None, shown=plain("mine"))


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
