"""From a picture of any size to the part that the network sees in evaluation, and what other crops need for theirs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from surgeon.augment.base import ImageOperation

if TYPE_CHECKING:
    from PIL import Image

    from surgeon.models.origin import Preprocessing

LARGEST_PADDED = 64
"""Up to this size, pictures are padded and cropped; larger ones are cropped and resized."""


def fill_colour(preprocessing: Preprocessing) -> tuple[int, ...]:
    """The colour that is zero after normalisation, one byte per channel."""
    return tuple(min(max(round(255 * mean), 0), 255) for mean in preprocessing.mean)


def is_small(preprocessing: Preprocessing) -> bool:
    """Whether the network takes small pictures, for which papers have values of their own."""
    return max(preprocessing.input_size[-2:]) <= LARGEST_PADDED


@cache
def evaluation_geometry(preprocessing: Preprocessing) -> ImageOperation:
    """The same resizing and centre crop as in evaluation; one object for one preprocessing."""
    from surgeon.data.transforms import transform_for

    return transform_for(preprocessing).picture


def in_mode(mode: str, steps: list[ImageOperation]) -> ImageOperation:
    """The steps one after the other, on a picture that is grey or in colour as the network wants it."""

    def apply(image: Image.Image) -> Image.Image:
        if image.mode != mode:
            image = image.convert(mode)
        for step in steps:
            image = step(image)
        return image

    return apply
