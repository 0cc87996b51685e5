"""Every shift that CIFAR networks are trained with: padded by 4, all 81 crops, both mirrored.

Summers and Dinneen, "Four Things Everyone Should Know to Improve Batch Normalization", ICLR 2020.
The padding is zero after normalisation, as in training; on normalised images that is plain zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from surgeon.views.base import Generate, crops, flipped, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.sources import Preprocessing

PADDING = 4
SHIFTS = [(top, left) for top in range(2 * PADDING + 1) for left in range(2 * PADDING + 1)]


def _all_crops(batch: Tensor) -> Iterator[Tensor]:
    import torch
    from torch.nn.functional import pad

    height, width = batch.shape[-2:]
    padded = pad(batch, [PADDING] * 4).contiguous(memory_format=torch.channels_last)
    for image in (padded, flipped(padded)):  # mirrored once, not once per crop
        yield from crops(image, (height, width), SHIFTS)


@register("cifar-flip-crop", count=2 * len(SHIFTS))
def cifar_flip_crop(preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:
    """All 81 crops of the image padded by 4 zeros, and of its mirror image."""
    return preprocessing, _all_crops
