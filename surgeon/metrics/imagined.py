"""Four imagined images, with which an interval reckons although no image like them was seen.

Fifty images of which two networks get the same ones right do not show that they are equally good,
and fifty without a mistake do not show that none is ever made. So every interval is computed as if
four more images had been seen: one that both networks get right, one that both get wrong, and one
for each that it alone gets right. For a single proportion these are the two successes and two
failures of Agresti and Coull (1998), for a paired one the two discordant images of Bonett and Price
(2012). The figures themselves are of the real images alone.

How sure the networks are of them is taken from the real images. Where both are right or both wrong,
it is the image up to which the surest ones make up a third of the sum of the roots of all doubts:
mistakes happen where there is doubt, but not only there. Where one alone is right, it gives its answer
one half; the other's cross-entropy is larger by as much as the two networks ever differ, and by half a
nat at least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surgeon.metrics.groups import GROUPS, group_of
from surgeon.metrics.temperature_fit import GRID, TemperatureSums

if TYPE_CHECKING:
    from surgeon.metrics.accumulator import ImageScores

# Whether each of two networks gets each of the imagined images right.
RIGHT = np.array([[True, False, True, False], [True, False, False, True]])
# Beyond it a network is as good as certain; its loss if wrong anyway would be infinite.
_LEAST_DOUBT = 1e-9
_SHARE_OF_DOUBT = 1 / 3
_LEAST_APART = 0.5


def with_imagined(candidate: ImageScores, others: Sequence[ImageScores] = ()) -> list[ImageScores]:
    """The scores of a network, and of others on the same images, each with the imagined images at the end."""
    if candidate.under:
        return _under_each_condition(candidate, others)
    networks = (candidate, *others)
    doubts = [_doubt(images) for images in networks]
    place = _typical(np.mean(doubts, axis=0))
    apart = max((_furthest_apart(candidate, other) for other in others), default=0.0)
    return [
        _appended(images, float(doubt[place]), apart, RIGHT[min(number, 1)])
        for number, (images, doubt) in enumerate(zip(networks, doubts, strict=True))
    ]


def _under_each_condition(candidate: ImageScores, others: Sequence[ImageScores]) -> list[ImageScores]:
    """The same imagined images are seen under every condition."""
    from surgeon.metrics.pooling import pool

    parts = [
        with_imagined(mine, theirs) for mine, *theirs in zip(candidate.under, *(o.under for o in others), strict=True)
    ]
    pooled = [pool(of_network) for of_network in zip(*parts, strict=True)]
    return [replace(each, elsewhere=of.elsewhere) for each, of in zip(pooled, (candidate, *others), strict=True)]


def _doubt(images: ImageScores) -> NDArray[np.float64]:
    """1 - confidence, to full precision where the network is right; none where there is no confidence."""
    doubt = np.where(images.correct, -np.expm1(-images.cross_entropy), 1 - images.confidence)
    return np.where(images.nan, _LEAST_DOUBT, np.clip(doubt, _LEAST_DOUBT, 1 - _LEAST_DOUBT))


def _typical(doubt: NDArray[np.float64]) -> int:
    order = np.argsort(doubt, kind="stable")
    so_far = np.cumsum(np.sqrt(doubt[order]))
    return int(order[np.searchsorted(so_far, _SHARE_OF_DOUBT * so_far[-1])])


def _furthest_apart(candidate: ImageScores, other: ImageScores) -> float:
    ours, theirs = candidate.cross_entropy, other.cross_entropy
    finite = np.isfinite(ours) & np.isfinite(theirs)
    return float(np.abs(ours[finite] - theirs[finite]).max(initial=_LEAST_APART))


def _new_indices(images: ImageScores) -> NDArray[np.int64]:
    """Of groups of their own kind: in one group, two images that differ in opposite directions would cancel."""
    free = images.indices.max() + 1 + np.arange(GROUPS)
    first_of_groups = np.sort(np.unique(group_of(free), return_index=True)[1])
    found: NDArray[np.int64] = free[first_of_groups[: RIGHT.shape[1]]]
    return found


def _appended(images: ImageScores, doubt: float, apart: float, right: NDArray[np.bool_]) -> ImageScores:
    alone = max(math.exp(-apart) / 2, _LEAST_DOUBT)
    doubts = np.where([True, True, False, False], doubt, np.where(right, 0.5, alone))
    indices = _new_indices(images)
    columns: dict[str, NDArray[Any]] = {
        "indices": indices,
        "cross_entropy": -np.log(np.where(right, 1 - doubts, doubts)),
        "confidence": 1 - doubts,
        "predicted": np.zeros(len(right), np.int32),
        "correct": right,
        "correct_top5": right,
        "nan": np.zeros(len(right), np.bool_),
    }
    # All doubt is on one other class: with two classes, dividing logits by T divides their difference.
    margin = np.where(right, 1, -1) * np.log((1 - doubts) / doubts)
    sums = TemperatureSums.of(indices, np.logaddexp(0, -margin[:, None] / GRID))
    joined: dict[str, Any] = {name: np.concatenate([getattr(images, name), added]) for name, added in columns.items()}
    return replace(images, **joined, sums=images.sums + sums, imagined=len(right))
