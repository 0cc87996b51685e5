"""How far a figure may be off: numbers whose mean it is, at least to first order, and its bias.

A figure that is no mean over images changes with each image by some amount, to first order. Those
amounts are as good as the numbers of a mean: their variance gives the interval of the figure, and
the variance of their differences that of the difference between two networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgeon.core.lazy import LazyModule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
else:
    np = LazyModule("numpy")


@dataclass(frozen=True)
class Spread:
    """Numbers, one per image or group of images, whose mean is the figure but for its bias.

    `excess` is by how much noise alone may have raised the figure: a gap between confidence and
    accuracy counts without its sign, so that chance never makes it smaller than nothing.
    """

    values: Array
    excess: float = 0.0


def of_absolute_values(means: Array, errors: Array) -> float:
    """By how much a sum of |mean| may be too large, if the means have these standard errors.

    |x| of x normal around u with variance 1 exceeds |u| by 2 * (density(u) - u * tail(u)) on average. The true u are
    unknown; taking them to be one standard error less than they appear seldom underrates the excess.
    """
    from scipy.special import ndtr  # type: ignore[import-untyped]

    noisy = errors > 0
    u = np.maximum(np.abs(means[noisy]) / errors[noisy] - 1, 0)
    density = np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)
    return float((errors[noisy] * 2 * (density - u * ndtr(-u))).sum())
