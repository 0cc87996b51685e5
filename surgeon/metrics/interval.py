"""How sure a figure is: its interval, and that of a difference on the same images.

All intervals are meant to contain the truth 95 times of 100, also for few images. What the truth is:
the figure of all images of that kind. Calibration errors of bins of 100 images depend on how many
bins there are; theirs is the figure of all images in as many bins of equal size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surgeon.core.errors import SurgeonError
from surgeon.metrics.base import Metric
from surgeon.metrics.groups import group_of
from surgeon.metrics.imagined import RIGHT, with_imagined
from surgeon.metrics.spread import Spread

if TYPE_CHECKING:
    from surgeon.metrics.accumulator import ImageScores
    from surgeon.metrics.pooling import AnyScores

TAIL = 0.025
"""The share of cases in which the truth may lie beyond one end of an interval."""
Z95 = 1.959963984540054  # the 97.5% quantile of the standard normal distribution


class Interval(NamedTuple):
    low: float
    high: float


UNBOUNDED = Interval(-math.inf, math.inf)


@dataclass(frozen=True)
class PairedComparison:
    """A candidate against a baseline on the same images.

    `difference` is the figure of the candidate less that of the baseline. For a metric that is a
    mean over images, `gained` and `lost` count the images on which the candidate is better and
    worse; for accuracy these are the discordant counts of McNemar's test. For other metrics both
    counts are None.
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
        return not (self.low > 0 or self.high < 0)  # an interval that is not a number leaves it open


def proportion_interval(correct: int, images: int) -> Interval:
    """The interval of Clopper and Pearson, which never contains a proportion less often than it says."""
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    if not 0 <= correct <= images or images == 0:
        raise SurgeonError(f"There is no proportion {correct} of {images}.", "Count at least one image.")
    low = 0.0 if correct == 0 else float(betaincinv(correct, images - correct + 1, 0.025))
    high = 1.0 if correct == images else float(betaincinv(correct + 1, images - correct, 0.975))
    return Interval(low, high)


def figure_interval(metric: Metric, images: ImageScores) -> Interval:
    """The interval of one figure, which contains it."""
    metric = metric.of(images)
    figure = _figure(metric, images)
    if not math.isfinite(figure):
        return UNBOUNDED if math.isnan(figure) else Interval(figure, figure)
    numbers = metric.per_image(images) if metric.per_image is not None and not images.under else None
    if numbers is not None and numbers.dtype == np.bool_:
        return proportion_interval(int(numbers.sum()), len(numbers))
    spread = _spread(metric, with_imagined(images)[0] if metric.of_classes else images)
    low, high = _around(figure, spread.values, _freedom(spread.values))
    return _clipped(Interval(low - spread.excess, high), *metric.bounds)


def interval_of_values(figure: float, values: NDArray[np.float64], bounds: tuple[float, float]) -> Interval:
    """The interval of a figure to which each image adds one of these values, at least to first order."""
    return _clipped(_around(figure, values, _freedom(values)), *bounds)


def compare(
    candidate: NDArray[Any],
    baseline: NDArray[Any],
    *,
    higher_is_better: bool,
    imagined: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> PairedComparison:
    """Compare two methods by their numbers for the same images in the same order.

    `imagined` are the numbers of images with which the interval reckons although they were not seen;
    for right and wrong they go without saying. Without any, differences that are all equal have no
    variance: the interval is that one value. One image says nothing about the variance: the interval
    is unbounded. Two infinite numbers (NaN logits in both) count as equal; one infinite number makes
    the mean and its interval infinite in that direction.
    """
    if candidate.shape != baseline.shape or candidate.ndim != 1 or len(candidate) == 0:
        raise SurgeonError(
            f"Numbers of {candidate.shape} and {baseline.shape} images cannot be compared in pairs.",
            "Score both methods on the same images.",
        )
    if imagined is None and candidate.dtype == baseline.dtype == np.bool_:
        imagined = RIGHT[0], RIGHT[1]
    differences = _differences(candidate, baseline)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    gained, lost = (better, worse) if higher_is_better else (worse, better)
    more = _differences(*imagined) if imagined is not None else np.zeros(0)
    mean, (low, high) = mean_interval(differences, more)
    return PairedComparison(len(differences), mean, low, high, gained, lost)


def _differences(candidate: NDArray[Any], baseline: NDArray[Any]) -> NDArray[np.float64]:
    first, second = candidate.astype(np.float64), baseline.astype(np.float64)
    # Subtracting equal infinities would give NaN.
    return np.subtract(first, second, out=np.zeros(len(first)), where=first != second)


def mean_interval(
    differences: NDArray[np.float64], imagined: NDArray[np.float64], tail: float = TAIL
) -> tuple[float, Interval]:
    """The mean of numbers, one for each image, and its interval, which reckons with imagined ones too."""
    infinite = set(differences[np.isinf(differences)].tolist())
    if len(infinite) == 2:
        return math.nan, UNBOUNDED
    if infinite:
        bound = infinite.pop()
        return bound, Interval(bound, bound)
    if len(differences) == 1:
        return float(differences[0]), UNBOUNDED
    mean = float(differences[0]) if (differences == differences[0]).all() else float(differences.mean())
    values = np.concatenate([differences, imagined])
    return mean, _around(mean, values, len(values) - 1, tail)


def _around(figure: float, values: NDArray[np.float64], freedom: float, tail: float = TAIL) -> Interval:
    """Student's interval of the mean of these values and of the figure, longer on the side of rare large values.

    If few values are far above the others, a sample has most likely too few of them, and a variance that is too
    small as well. The quantiles of the studentised mean are corrected to first order for the skewness (Cornish and
    Fisher), but only where that makes the interval longer.
    """
    from scipy.special import stdtrit

    if len(values) < 2 or not np.isfinite(values).all():
        return UNBOUNDED
    if (values == values[0]).all():
        return Interval(min(figure, float(values[0])), max(figure, float(values[0])))
    mean, number = float(values.mean()), len(values)
    quantile = float(stdtrit(freedom, 1 - tail))
    deviations = values - mean
    skewness = float((deviations**3).mean()) / float((deviations**2).mean()) ** 1.5
    longer = skewness * (1 + 2 * quantile**2) / (6 * math.sqrt(number))
    error = float(values.std(ddof=1)) / math.sqrt(number)
    low, high = min(mean, figure), max(mean, figure)
    return Interval(low - error * (quantile + max(-longer, 0)), high + error * (quantile + max(longer, 0)))


def _freedom(values: NDArray[np.float64]) -> float:
    """To how many normal values a variance amounts: fewer than there are if it rests on few large ones."""
    squares = (values - values.mean()) ** 2 if len(values) else values
    if not squares.any() or not np.isfinite(squares).all():
        return max(len(values) - 1.0, 1.0)
    freedom = 2 * len(values) / max(float((squares**2).mean() / squares.mean() ** 2) - 1, 1e-9)
    return min(max(freedom, 1.0), len(values) - 1.0)


def _clipped(interval: Interval, least: float, most: float) -> Interval:
    return Interval(max(interval.low, least), min(interval.high, most))


def compare_scores(
    metric: Metric,
    candidate: AnyScores,
    baseline: AnyScores,
    fitted_on: tuple[AnyScores, AnyScores] | None = None,
) -> PairedComparison:
    """Compare two methods by any metric.

    A metric that is a mean over images is compared on the images that both have scored; for any
    other, both must have scored the same images. `fitted_on` are the scores of the candidate and of
    the baseline on which their temperatures are fitted. Without it each is fitted on the compared
    images.
    """
    on_candidate, on_baseline = fitted_on or (None, None)
    return compare_images(metric, candidate.images(on_candidate), baseline.images(on_baseline))


def compare_images(metric: Metric, candidate: ImageScores, baseline: ImageScores) -> PairedComparison:
    """Compare two methods by any metric, by what is known of each image."""
    metric = metric.of(candidate)
    if metric.per_image is None:
        return _compare_figures(metric, candidate, baseline)
    if candidate.under:
        return _compare_under(metric, candidate, baseline)
    _, mine, theirs = np.intersect1d(candidate.indices, baseline.indices, assume_unique=True, return_indices=True)
    numbers = metric.per_image(candidate)[mine], metric.per_image(baseline)[theirs]
    imagined = None
    if metric.of_classes and len(mine) and not all(each.dtype == np.bool_ for each in numbers):
        first, second = with_imagined(candidate.only(mine), [baseline.only(theirs)])
        imagined = metric.per_image(first)[len(mine) :], metric.per_image(second)[len(mine) :]
    return compare(*numbers, higher_is_better=metric.higher_is_better, imagined=imagined)


def _compare_under(metric: Metric, candidate: ImageScores, baseline: ImageScores) -> PairedComparison:
    """Compare means over images under several conditions, image by image."""
    _check_same_images(metric, candidate, baseline)
    assert metric.per_image is not None
    pair = with_imagined(candidate, [baseline])
    first, second = (by_image(images, metric.per_image(images).astype(np.float64)) for images in pair)
    real = _number(candidate)
    return compare(
        first[:real],
        second[:real],
        higher_is_better=metric.higher_is_better,
        imagined=(first[real:], second[real:]),
    )


def by_image(images: ImageScores, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Averaged over the conditions that each image was seen under, if there are several."""
    if not images.under or len(values) != len(images):
        return values
    mean: NDArray[np.float64] = values.reshape(len(images.under), -1).mean(axis=0)
    return mean


def _number(images: ImageScores) -> int:
    """Of images, however many conditions each was seen under."""
    return len(images.under[0]) if images.under else len(images)


def _check_same_images(metric: Metric, candidate: ImageScores, baseline: ImageScores) -> None:
    if not np.array_equal(candidate.indices, baseline.indices):
        raise SurgeonError(
            f"Scores of different images ({len(candidate)} and {len(baseline)}) cannot be compared by {metric.name}.",
            "Score both methods on the same images.",
        )


def _compare_figures(metric: Metric, candidate: ImageScores, baseline: ImageScores) -> PairedComparison:
    _check_same_images(metric, candidate, baseline)
    figures = _figure(metric, candidate), _figure(metric, baseline)
    difference = _difference(*figures)
    if any(map(math.isinf, figures)):
        low = high = difference
    elif math.isnan(difference):
        low, high = UNBOUNDED
    else:
        low, high = _interval_of_difference(metric, difference, candidate, baseline)
    return PairedComparison(_number(candidate), difference, low, high, gained=None, lost=None)


def _interval_of_difference(
    metric: Metric, difference: float, candidate: ImageScores, baseline: ImageScores
) -> Interval:
    if _number(candidate) == 1:
        return UNBOUNDED
    if not candidate.same_as(baseline):
        imagined = with_imagined(candidate, [baseline]) if metric.of_classes else [candidate, baseline]
    elif candidate.scaled.temperature == baseline.scaled.temperature:
        return Interval(difference, difference)
    elif not metric.of_classes:
        imagined = [candidate, baseline]
    else:  # one network at two temperatures: there is no image that it gets right at one of them alone
        imagined = with_imagined(candidate) + with_imagined(baseline)
    first, second = (_spread(metric, images) for images in imagined)
    if len(first.values) != len(second.values):
        return UNBOUNDED
    values = first.values - second.values
    low, high = _around(difference, values, _freedom(values))
    # Noise may have raised either figure, and the other one not.
    return Interval(low - first.excess, high + second.excess)


def _spread(metric: Metric, images: ImageScores) -> Spread:
    """How far a figure may be off, by what the metric itself says or else by leaving out one group at a time."""
    if metric.per_image is not None:
        return Spread(by_image(images, metric.per_image(images).astype(np.float64)))
    if metric.spread is not None:
        spread = metric.spread(images)
        return replace(spread, values=by_image(images, spread.values))
    groups = np.unique(group_of(images.indices)).tolist()
    if len(groups) < 2:
        return Spread(np.zeros(0))
    without = np.array([_figure(metric, images.without(group)) for group in groups])
    return Spread(len(groups) * _figure(metric, images) - (len(groups) - 1) * without)


def _figure(metric: Metric, images: ImageScores) -> float:
    value = metric.compute(images)
    if value is None:
        raise SurgeonError(f"{metric.name!r} has no value on these images.", "Compare by another metric.")
    return value


def _difference(candidate: float, baseline: float) -> float:
    """Candidate - baseline; equal infinities count as equal."""
    return 0.0 if candidate == baseline else candidate - baseline
