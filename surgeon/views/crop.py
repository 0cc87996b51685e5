"""Small shifts of the image, for any network and any size of image.

The image is padded by a sixteenth of its sides (at least one pixel) by repeating its border, and
windows of its own size are taken at the four corners and the centre, which is the image itself.
Padding rather than enlarging keeps the scale of what is shown and cuts off little; repeating the
border assumes nothing about the background or the normalisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from surgeon.views.base import Generate, corners_and_centre, crops, flipped, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.sources import Preprocessing

PADDED_SHARE = 16


def _shifted(batch: Tensor) -> Iterator[Tensor]:
    from torch.nn.functional import pad

    height, width = batch.shape[-2:]
    down, right = max(height // PADDED_SHARE, 1), max(width // PADDED_SHARE, 1)
    padded = pad(batch, (right, right, down, down), mode="replicate")
    return crops(padded, (height, width), corners_and_centre((2 * down, 2 * right)))


def _shifted_and_flipped(batch: Tensor) -> Iterator[Tensor]:
    yield from _shifted(batch)
    yield from _shifted(flipped(batch))


@register("crop", count=5)
def crop(preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:
    """The image, and shifted by a sixteenth of its sides to the four corners."""
    return preprocessing, _shifted


@register("flip-crop", count=10)
def flip_crop(preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:
    """The views of `crop` of the image and of its mirror image."""
    return preprocessing, _shifted_and_flipped
