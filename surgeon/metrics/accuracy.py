"""Top-1 and top-5 accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.metrics.base import register

if TYPE_CHECKING:
    from surgeon.metrics.accumulator import ImageScores

# With five classes or fewer the label is always among the first five.
FEWEST_CLASSES_FOR_TOP5 = 6


@register(
    "accuracy",
    higher_is_better=True,
    format=".2%",
    per_image=lambda images: images.correct,
    bounds=(0, 1),
    rank=0,
    essential=True,
)
def accuracy(images: ImageScores) -> float:
    """Share of images (of masks: of pixels) whose most likely class is the label."""
    return float(images.correct.mean())


@register(
    "top5",
    higher_is_better=True,
    label="top-5 accuracy",
    heading="top-5",
    format=".2%",
    per_image=lambda images: images.correct_top5,
    bounds=(0, 1),
    rank=1,
)
def top5(images: ImageScores) -> float | None:
    """Share of images whose label is among the five most likely classes."""
    return float(images.correct_top5.mean()) if images.classes >= FEWEST_CLASSES_FOR_TOP5 else None
