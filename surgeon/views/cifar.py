"""Every shift that CIFAR networks are trained with: padded by 4, all 81 crops, both mirrored.

Summers and Dinneen, "Four Things Everyone Should Know to Improve Batch Normalization", ICLR 2020.
The padding is zero after normalisation, as in training; on normalised images that is plain zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from surgeon.views.base import Generate, ViewConfig, crops, flipped, option, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.origin import Preprocessing


class PaddingConfig(ViewConfig):
    padding: int = option(4, "Zeros on each side, as in training.", ge=1, le=16)


def _count(config: PaddingConfig) -> int:
    return 2 * (2 * config.padding + 1) ** 2


def _all_crops(batch: Tensor, padding: int) -> Iterator[Tensor]:
    import torch
    from torch.nn.functional import pad

    height, width = batch.shape[-2:]
    padded = pad(batch, [padding] * 4).contiguous(memory_format=torch.channels_last)
    shifts = [(top, left) for top in range(2 * padding + 1) for left in range(2 * padding + 1)]
    for image in (padded, flipped(padded)):  # mirrored once, not once per crop
        yield from crops(image, (height, width), shifts)


@register("cifar-flip-crop", count=_count, config=PaddingConfig, paper="Summers & Dinneen, ICLR 2020")
def cifar_flip_crop(config: PaddingConfig, preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:
    """All 81 crops of the image padded by 4 zeros, and of its mirror image."""
    return preprocessing, partial(_all_crops, padding=config.padding)
