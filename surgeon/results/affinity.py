"""What `affinity` finds out."""

from __future__ import annotations

from pydantic import Field

from surgeon.models.origin import Preprocessing
from surgeon.results.base import Result


class AugmentAffinity(Result):
    """How well a network classifies images that are augmented in one way.

    The accuracy is the weight that a label gives to the predicted class, averaged: for labels that
    are not mixed, the usual accuracy. `difference` is that minus the clean accuracy, paired on the
    same images, with its 95% interval.
    """

    augment: str
    accuracy: float
    ceiling: float
    """What a network could reach that always names the class with the largest weight; 1 where labels are not mixed."""
    difference: float
    low: float
    high: float
    seconds: float


class Affinity(Result):
    """How far augmentations lead from the images that a network knows."""

    model: str
    data: str
    split: str
    warnings: tuple[str, ...] = ()
    """What to beware of in the images that it was chosen by."""
    preprocessing: Preprocessing
    seed: int
    images: int
    clean_accuracy: float
    augments: tuple[AugmentAffinity, ...]
    """From the nearest to the farthest."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Augmentations that cannot be applied to these images, and why."""
    matched_classes: tuple[int, int] | None = None
    """How many classes the data and the network have, where they were matched by name."""
    bad_images: tuple[str, ...] = ()
    seconds: float
