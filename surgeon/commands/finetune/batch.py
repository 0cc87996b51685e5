"""How many images a step takes, and into how many parts they are cut."""

from __future__ import annotations

from surgeon.core.errors import SurgeonError
from surgeon.data.images import ImageSet
from surgeon.training.defaults import default_batch
from surgeon.training.recipe import Recipe

MASKS_BATCH = 8
"""Of images with masks, which need far more memory."""


def batch_for(images: ImageSet, trained: bool) -> int:
    """The batch of a recipe that names none, for trained or for drawn weights."""
    batch = default_batch(len(images), trained)
    return batch if images.masks is None else min(batch, MASKS_BATCH)


def check_division(batch_size: int, processes: int, recipe: Recipe) -> None:
    """Refuse a batch that cannot be cut into equal parts of two images or more."""
    parts = processes * recipe.accumulate
    if batch_size % parts:
        raise SurgeonError(
            f"A batch of {batch_size} cannot be cut into {parts} equal parts ({processes} x {recipe.accumulate}).",
            f"Choose a batch size that is a multiple of {parts}.",
        )
    if batch_size // parts < 2:
        raise SurgeonError(f"A batch of {batch_size} leaves one image for each of {parts} parts.", "Use more images.")
