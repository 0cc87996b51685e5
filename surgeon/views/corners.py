"""Crops of the network's size from the corners and the centre of a larger image.

As torchvision's `five_crop` and `ten_crop`. The larger image is what the network's own
preprocessing has before its centre crop; where that crops nothing, the image is enlarged by 8/7
(256 for 224).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from surgeon.views.base import Generate, ViewConfig, corners_and_centre, crops, enlarged, flipped, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.origin import Preprocessing

USUAL_CROP = 0.875


def _larger_size(preprocessing: Preprocessing) -> tuple[int, int]:
    share = preprocessing.crop_pct if preprocessing.crop_pct < 1 else USUAL_CROP
    height, width = (int(side / share + 1e-6) for side in preprocessing.input_size[-2:])
    return height, width


def _five(preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:
    larger = _larger_size(preprocessing)
    height, width = preprocessing.input_size[-2:]
    offsets = corners_and_centre((larger[0] - height, larger[1] - width))

    def generate(batch: Tensor) -> Iterator[Tensor]:
        return crops(batch, (height, width), offsets)

    return enlarged(preprocessing, larger), generate


@register("five-crop", count=5)
def five_crop(config: ViewConfig, preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:  # noqa: ARG001
    """Crops at the corners and the centre of the image, before the network's centre crop."""
    return _five(preprocessing)


@register("ten-crop", count=10, paper="Krizhevsky et al., NeurIPS 2012")
def ten_crop(config: ViewConfig, preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:  # noqa: ARG001
    """The crops of `five-crop`, and those of the mirror image."""
    larger, five = _five(preprocessing)

    def generate(batch: Tensor) -> Iterator[Tensor]:
        yield from five(batch)
        yield from five(flipped(batch))

    return larger, generate
