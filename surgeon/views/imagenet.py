"""A grid of crops of 224 pixels out of the centre of 256, both mirrored.

Summers and Dinneen, "Four Things Everyone Should Know to Improve Batch Normalization", ICLR 2020:
short side 256, centre 256x256, crops at offsets 0, 16 and 32 in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from surgeon.core.errors import SurgeonError
from surgeon.views.base import Generate, ViewConfig, crops, enlarged, flipped, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.origin import Preprocessing

CROP, WHOLE = (224, 224), (256, 256)
OFFSETS = [(top, left) for top in (0, 16, 32) for left in (0, 16, 32)]


def _grid(batch: Tensor) -> Iterator[Tensor]:
    yield from crops(batch, CROP, OFFSETS)
    yield from crops(flipped(batch), CROP, OFFSETS)


@register("imagenet-flip-crop", count=2 * len(OFFSETS), paper="Summers & Dinneen, ICLR 2020")
def imagenet_flip_crop(
    config: ViewConfig,  # noqa: ARG001
    preprocessing: Preprocessing,
) -> tuple[Preprocessing, Generate]:
    """Nine crops of 224 pixels from the centre of 256, and of its mirror image."""
    if preprocessing.input_size[-2:] != CROP:
        height, width = preprocessing.input_size[-2:]
        raise SurgeonError(
            f"The views 'imagenet-flip-crop' are for networks of 224x224, but this one takes {height}x{width}.",
            "Use ten-crop, which fits any size.",
        )
    return enlarged(preprocessing, WHOLE), _grid
