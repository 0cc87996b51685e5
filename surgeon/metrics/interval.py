"""How sure a figure is: the interval of an accuracy, and of a difference on the same images.

All intervals have 95% coverage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surgeon.core.errors import SurgeonError
from surgeon.metrics.base import Metric
from surgeon.metrics.groups import group_of

if TYPE_CHECKING:
    from surgeon.metrics.accumulator import ImageScores, Scores

Z95 = 1.959963984540054  # the 97.5% quantile of the standard normal distribution


class Interval(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class PairedComparison:
    """A candidate against a baseline on the same images.

    `difference` is the figure of the candidate less that of the baseline. For a metric that is a
    mean over images, the interval is the normal approximation for the mean of the per-image
    differences, and `gained` and `lost` count the images on which the candidate is better and worse;
    for accuracy these are the discordant counts of McNemar's test. For other metrics the interval is
    that of the delete-a-group jackknife, and both counts are None.
    """

    images: int
    difference: float
    low: float
    high: float
    gained: int | None
    lost: int | None

    @property
    def within_noise(self) -> bool:
        """Whether the interval leaves open which of the two is better."""
        return self.low <= 0 <= self.high


def wilson_interval(correct: int, images: int) -> Interval:
    """Wilson's score interval of a proportion; within [0, 1], and sound for few images and near 0 or 1."""
    if not 0 <= correct <= images or images == 0:
        raise SurgeonError(f"There is no proportion {correct} of {images}.", "Count at least one image.")
    share, z2 = correct / images, Z95**2
    centre = (share + z2 / (2 * images)) / (1 + z2 / images)
    half = Z95 / (1 + z2 / images) * math.sqrt(share * (1 - share) / images + z2 / (4 * images**2))
    # At the ends one bound is exactly 0 or 1, which rounding would miss.
    low = 0.0 if correct == 0 else centre - half
    high = 1.0 if correct == images else centre + half
    return Interval(low, high)


def compare(candidate: NDArray[Any], baseline: NDArray[Any], *, higher_is_better: bool) -> PairedComparison:
    """Compare two methods by their numbers for the same images in the same order.

    Differences that are all equal have no variance: the interval is that one value. One image says
    nothing about the variance: the interval is unbounded. Two infinite numbers (NaN logits in both)
    count as equal; one infinite number makes the mean and its interval infinite in that direction.
    """
    if candidate.shape != baseline.shape or candidate.ndim != 1 or len(candidate) == 0:
        raise SurgeonError(
            f"Numbers of {candidate.shape} and {baseline.shape} images cannot be compared in pairs.",
            "Score both methods on the same images.",
        )
    first, second = candidate.astype(np.float64), baseline.astype(np.float64)
    # Subtracting equal infinities would give NaN.
    differences = np.subtract(first, second, out=np.zeros(len(first)), where=first != second)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    gained, lost = (better, worse) if higher_is_better else (worse, better)
    mean, (low, high) = _mean_interval(differences)
    return PairedComparison(len(differences), mean, low, high, gained, lost)


def _mean_interval(differences: NDArray[np.float64]) -> tuple[float, Interval]:
    infinite = set(differences[np.isinf(differences)].tolist())
    if len(infinite) == 2:
        return math.nan, Interval(-math.inf, math.inf)
    if infinite:
        bound = infinite.pop()
        return bound, Interval(bound, bound)
    if len(differences) == 1:
        return float(differences[0]), Interval(-math.inf, math.inf)
    if (differences == differences[0]).all():
        return float(differences[0]), Interval(float(differences[0]), float(differences[0]))
    mean = float(differences.mean())
    half = Z95 * float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return mean, Interval(mean - half, mean + half)


def compare_scores(
    metric: Metric,
    candidate: Scores,
    baseline: Scores,
    fitted_on: tuple[Scores, Scores] | None = None,
) -> PairedComparison:
    """Compare two methods by any metric.

    A metric that is a mean over images is compared on the images that both have scored; for any
    other, both must have scored the same images. `fitted_on` are the scores of the candidate and of
    the baseline on which their temperatures are fitted. Without it each is fitted on the compared
    images, and the interval includes how much the fit depends on them.
    """
    on_candidate, on_baseline = fitted_on or (None, None)
    first, second = candidate.images(on_candidate), baseline.images(on_baseline)
    if metric.per_image is None:
        return _compare_by_groups(metric, first, second)
    _, mine, theirs = np.intersect1d(first.indices, second.indices, assume_unique=True, return_indices=True)
    numbers = metric.per_image(first)[mine], metric.per_image(second)[theirs]
    return compare(*numbers, higher_is_better=metric.higher_is_better)


def _compare_by_groups(metric: Metric, candidate: ImageScores, baseline: ImageScores) -> PairedComparison:
    if not np.array_equal(candidate.indices, baseline.indices):
        raise SurgeonError(
            f"Scores of different images ({len(candidate)} and {len(baseline)}) cannot be compared by {metric.name}.",
            "Score both methods on the same images.",
        )
    figures = _figure(metric, candidate), _figure(metric, baseline)
    difference = _difference(*figures)
    if any(map(math.isinf, figures)):
        low = high = difference
    else:
        half = _jackknife_half_width(metric, candidate, baseline)
        # An unbounded interval rather than NaN, which would compare as a certain difference.
        low, high = (-math.inf, math.inf) if math.isnan(difference + half) else (difference - half, difference + half)
    return PairedComparison(len(candidate), difference, low, high, gained=None, lost=None)


def _jackknife_half_width(metric: Metric, candidate: ImageScores, baseline: ImageScores) -> float:
    """Half of the interval that follows from leaving out one group of images at a time.

    Where both networks are all but perfectly calibrated, the calibration errors have a kink, and the
    interval is too wide (up to threefold) rather than too narrow.
    """
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    groups = np.unique(group_of(candidate.indices)).tolist()
    if len(groups) < 2:
        return math.inf
    without = np.array(
        [_difference(_figure(metric, candidate.without(g)), _figure(metric, baseline.without(g))) for g in groups]
    )
    if not np.isfinite(without).all():
        return math.inf
    freedom = len(groups) - 1
    return float(stdtrit(freedom, 0.975)) * math.sqrt(freedom * float(without.var()))


def _figure(metric: Metric, images: ImageScores) -> float:
    value = metric.compute(images)
    if value is None:
        raise SurgeonError(f"{metric.name!r} has no value on these images.", "Compare by another metric.")
    return value


def _difference(candidate: float, baseline: float) -> float:
    """Candidate - baseline; equal infinities count as equal."""
    return 0.0 if candidate == baseline else candidate - baseline
