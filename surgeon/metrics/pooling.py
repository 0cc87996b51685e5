"""The same images under several conditions: figures of all of them together, with the image as the unit of sampling.

An image that is hard under one condition is hard under others. So an interval must not take the predictions of an
image under 75 conditions for 75 images: whatever an image contributes is averaged over the conditions first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surgeon.core.errors import SurgeonError
from surgeon.metrics.accumulator import ImageScores, Scores
from surgeon.metrics.imagined import RIGHT
from surgeon.metrics.interval import Interval, mean_interval, proportion_interval


def pool(parts: Sequence[ImageScores]) -> ImageScores:
    """What is known of the same images under each of several conditions, as if all were one set of predictions."""
    first, *others = parts
    if not others:
        return first
    if any(not np.array_equal(first.indices, other.indices) for other in others):
        raise SurgeonError("Not all images were seen under all conditions.", "Score the same images under each.")
    return first.pooled(others)


class ScoresUnder:
    """The scores of one network under several conditions, which are compared and summarised like those under one."""

    def __init__(self, scores: Mapping[str, Scores]) -> None:
        self.by_condition = dict(scores)

    def __len__(self) -> int:
        """How many images there are, each under all conditions."""
        return max(map(len, self.by_condition.values()), default=0)

    def merge(self, other: ScoresUnder) -> ScoresUnder:
        """Both, as if one process had seen all images."""
        return ScoresUnder({}).absorb(self).absorb(other)

    def absorb(self, other: ScoresUnder) -> ScoresUnder:
        """The same in this object, at the cost of the other's images."""
        for name, scores in other.by_condition.items():
            self.by_condition[name] = self.by_condition.get(name, type(scores)()).absorb(scores)
        return self

    def images(self, fitted_on: Scores | ScoresUnder | None = None) -> ImageScores:
        """The numbers of every image under every condition; one temperature is fitted for all conditions."""
        elsewhere = None if fitted_on is None else fitted_on.images().scaled
        return replace(pool([scores.images() for scores in self.by_condition.values()]), elsewhere=elsewhere)


AnyScores: TypeAlias = Scores | ScoresUnder
"""Under one condition, or under several."""


def wrong(scores: Sequence[Scores]) -> NDArray[np.float64]:
    """1 for every image (row) that is classified wrongly under a condition (column); of masks, 1 - IoU on average."""
    images = [each.images() for each in scores]
    pool(images)  # which refuses other images
    return np.stack([each.errors() for each in images], axis=1)


def weighted_error(
    errors: NDArray[np.float64], weights: NDArray[np.float64], *, right_or_wrong: bool = True
) -> tuple[float, Interval]:
    """A weighted sum of the error rates under several conditions, and its interval.

    Args:
        errors: Of `wrong`.
        weights: One for each condition; below zero for what is subtracted.
        right_or_wrong: Whether each error is 0 or 1; those of masks may be anything.
    """
    value, (low, high) = mean_interval(errors @ weights, _imagined(weights) if right_or_wrong else np.zeros(0))
    if right_or_wrong and len(weights) == 1 and weights[0] > 0:
        low, high = (weights[0] * end for end in proportion_interval(int(errors.sum()), len(errors)))
        return value, Interval(float(low), float(high))
    return value, Interval(max(low, weights[weights < 0].sum()), min(high, weights[weights > 0].sum()))


def weighted_difference(
    candidate: NDArray[np.float64],
    baseline: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    right_or_wrong: bool = True,
) -> tuple[float, Interval]:
    """The weighted sum of a network's error rates less that of another one on the same images, and its interval."""
    alone = _largest(weights)
    imagined = np.array([0.0, 0.0, -alone, alone]) if right_or_wrong else np.zeros(0)
    return mean_interval((candidate - baseline) @ weights, imagined)


def _imagined(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the imagined images: right, wrong, and each of both only under what is added or what is subtracted."""
    added, subtracted = weights[weights > 0].sum(), weights[weights < 0].sum()
    both: NDArray[np.float64] = np.where(RIGHT[0], 0.0, added) + np.where(RIGHT[1], 0.0, subtracted)
    return both if subtracted else np.where(RIGHT[0], 0.0, added)


def _largest(weights: NDArray[Any]) -> float:
    return float(max(weights[weights > 0].sum(), -weights[weights < 0].sum()))
