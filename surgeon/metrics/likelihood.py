"""Cross-entropy, as it is and after temperature scaling.

The difference between the two is what a network loses by being too sure or too unsure of itself.
What remains after scaling is how well it ranks the classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.metrics.base import register

if TYPE_CHECKING:
    from surgeon.metrics.accumulator import ImageScores


@register("cross-entropy", higher_is_better=False, per_image=lambda images: images.cross_entropy)
def cross_entropy(images: ImageScores) -> float:
    """Mean of -log(probability of the label), in nats."""
    return float(images.cross_entropy.mean())


@register("scaled-cross-entropy", higher_is_better=False)
def scaled_cross_entropy(images: ImageScores) -> float:
    """Cross-entropy after dividing all logits by the best single temperature."""
    return images.scaled.cross_entropy
