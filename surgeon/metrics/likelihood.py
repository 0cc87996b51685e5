"""Cross-entropy, as it is and after temperature scaling.

The difference between the two is what a network loses by being overconfident or underconfident.
What remains after scaling is how well it ranks the classes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from surgeon.core.lazy import LazyModule
from surgeon.metrics.base import register
from surgeon.metrics.spread import Spread

if TYPE_CHECKING:
    import numpy as np

    from surgeon.metrics.accumulator import ImageScores
else:
    np = LazyModule("numpy")

ABOVE_ZERO = (0.0, math.inf)


@register(
    "cross-entropy",
    higher_is_better=False,
    per_image=lambda images: images.cross_entropy,
    bounds=ABOVE_ZERO,
    rank=2,
    essential=True,
)
def cross_entropy(images: ImageScores) -> float:
    """Mean of -log(probability of the label), in nats."""
    return float(images.cross_entropy.mean())


def scaled_spread(images: ImageScores) -> Spread:
    """At the best temperature a small change of it makes no difference, so the fit adds nothing to the variance.

    The cross-entropies of single images at that temperature are not kept, only those of groups of them.
    """
    fit = images.scaled
    if fit.temperature is None:
        return Spread(np.array([]))
    totals, sizes = images.sums.by_group(fit.temperature)
    mean = totals.sum() / sizes.sum()
    return Spread(mean + (totals - mean * sizes) * len(sizes) / sizes.sum())


@register(
    "scaled-cross-entropy",
    higher_is_better=False,
    label="cross-entropy after temperature scaling",
    heading="at best temperature",
    spread=scaled_spread,
    bounds=ABOVE_ZERO,
    rank=3,
    essential=True,
    paper="Guo et al., ICML 2017",
)
def scaled_cross_entropy(images: ImageScores) -> float:
    """Cross-entropy after dividing all logits by the best single temperature."""
    return images.scaled.cross_entropy
