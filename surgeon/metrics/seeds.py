"""Networks that differ by their seed alone: how sure a mean over seeds is, for other seeds and for other images.

Two questions, two intervals. Over seeds: what would other runs give, on the same images? Student's interval of the
values, or of the differences between runs of the same seed. Over images: what would the same runs give on other images
of that kind? Each image's number is averaged over the runs first, and compared image by image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from surgeon.metrics.accumulator import ImageScores
from surgeon.metrics.base import Metric
from surgeon.metrics.imagined import with_imagined
from surgeon.metrics.interval import TAIL, Interval, by_image, mean_interval


def seed_interval(values: Sequence[float], tail: float = TAIL) -> Interval | None:
    """Student's interval of the mean of one value per seed; None if there are fewer than two, or one is not finite.

    Args:
        values: One per seed.
        tail: How often the truth may lie beyond either end.
    """
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    number = len(values)
    if number < 2 or not all(map(math.isfinite, values)):
        return None
    mean = math.fsum(values) / number
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (number - 1))
    reach = float(stdtrit(number - 1, 1 - tail)) * deviation / math.sqrt(number)
    return Interval(mean - reach, mean + reach)


def image_interval(
    metric: Metric, candidates: Sequence[ImageScores], baselines: Sequence[ImageScores] = (), tail: float = TAIL
) -> Interval | None:
    """The interval over images of a mean over runs, or of its difference from the mean over other runs.

    None for a metric that is no mean over images, and for runs that have not seen the same images.

    Args:
        metric: By which.
        candidates: The runs.
        baselines: The runs to compare with, if any: each candidate with its own, or all with all if there are more.
        tail: How often the truth may lie beyond either end.
    """
    everyone = [*candidates, *baselines]
    if metric.per_image is None or not _same_images(everyone):
        return None
    if len(candidates) == len(baselines):
        pairs = [(one, [other]) for one, other in zip(candidates, baselines, strict=True)]
    else:
        pairs = [(one, [other]) for one in candidates for other in baselines] or [(one, []) for one in candidates]
    real = len(everyone[0].under[0]) if everyone[0].under else len(everyone[0])
    numbers = np.mean([_numbers(metric, *with_imagined(one, others)) for one, others in pairs], axis=0)
    return mean_interval(numbers[:real], numbers[real:], tail)[1]


def _numbers(metric: Metric, candidate: ImageScores, baseline: ImageScores | None = None) -> NDArray[np.float64]:
    """Of each image, the imagined ones last."""
    assert metric.per_image is not None
    mine = by_image(candidate, metric.per_image(candidate).astype(np.float64))
    if baseline is None:
        return mine
    theirs = by_image(baseline, metric.per_image(baseline).astype(np.float64))
    # Subtracting equal infinities would give NaN.
    return np.subtract(mine, theirs, out=np.zeros(len(mine)), where=mine != theirs)


def _same_images(scores: Sequence[ImageScores]) -> bool:
    first = scores[0]
    return all(np.array_equal(one.indices, first.indices) and len(one.under) == len(first.under) for one in scores[1:])
