"""Small shifts of the image, for any network and any size of image.

The image is padded by a share of its sides (a sixteenth, and at least one pixel) by repeating its border, and
windows of its own size are taken at the four corners and the centre, which is the image itself.
Padding rather than enlarging keeps the scale of what is shown and cuts off little; repeating the
border assumes nothing about the background or the normalisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from surgeon.views.base import Generate, ViewConfig, corners_and_centre, crops, flipped, option, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.origin import Preprocessing


class ShiftConfig(ViewConfig):
    shift: float = option(0.0625, "Size of the shift, as a share of the sides; at least one pixel.", gt=0, le=0.5)


def _shifted(batch: Tensor, share: float) -> Iterator[Tensor]:
    from torch.nn.functional import pad

    height, width = batch.shape[-2:]
    down, right = max(int(height * share), 1), max(int(width * share), 1)
    padded = pad(batch, (right, right, down, down), mode="replicate")
    return crops(padded, (height, width), corners_and_centre((2 * down, 2 * right)))


def _shifted_and_flipped(batch: Tensor, share: float) -> Iterator[Tensor]:
    yield from _shifted(batch, share)
    yield from _shifted(flipped(batch), share)


@register("crop", count=5, config=ShiftConfig)
def crop(config: ShiftConfig, preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:
    """The image, and the image shifted by a sixteenth of its sides towards each corner."""
    return preprocessing, partial(_shifted, share=config.shift)


@register("flip-crop", count=10, config=ShiftConfig)
def flip_crop(config: ShiftConfig, preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:
    """The views of `crop` of the image and of its mirror image."""
    return preprocessing, partial(_shifted_and_flipped, share=config.shift)
