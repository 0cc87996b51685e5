"""What somebody else's package adds: two metrics, one that is a share of the images and one with a unit of its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from surgeon.metrics import register

if TYPE_CHECKING:
    from surgeon.metrics import ImageScores


@register(
    "their-sure-share",
    higher_is_better=True,
    label="share that is sure and right",
    heading="sure and right",
    format=".1%",
    per_image=lambda images: images.correct & (images.confidence > 0.9),
    bounds=(0, 1),
    paper="They, 2024",
)
def their_sure_share(images: ImageScores) -> float:
    """Share of images that were classified correctly with a confidence above 0.9."""
    return float((images.correct & (images.confidence > 0.9)).mean())


@register(
    "their-surprise",
    higher_is_better=False,
    label="mean surprise",
    heading="surprise",
    unit="bit",
    format=".3f",
    per_image=lambda images: images.cross_entropy / math.log(2),
    bounds=(0, math.inf),
)
def their_surprise(images: ImageScores) -> float:
    """Mean of -log2(probability of the label)."""
    return float(images.cross_entropy.mean() / math.log(2))
