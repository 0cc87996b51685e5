"""Cutout: a square of each image is blanked.

DeVries and Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout", 2017.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from surgeon.augment.base import AugmentConfig, BatchOperation, Kind, option, register
from surgeon.augment.draws import Draws

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from surgeon.models.origin import Preprocessing


class CutoutConfig(AugmentConfig):
    size: int | None = option(None, "Side of the square in pixels; by default 16 at 32 px, and 90 at 224 px.", ge=1)
    p: float = option(1.0, "Probability that an image is cut.", ge=0, le=1)


@register("cutout", kind=Kind.BATCH, paper="DeVries and Taylor, 2017", config=CutoutConfig, keeps_places=True)
def cutout(config: CutoutConfig, preprocessing: Preprocessing) -> BatchOperation:  # noqa: ARG001
    """A square, centred anywhere, is filled with the mean colour, which is 0 after normalisation."""

    def cut(images: Tensor, targets: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        import torch

        draws = Draws(generator, images.device)
        side = config.size or usual_size(min(images.shape[2:]))
        lengths = torch.where(draws.uniform(len(images)) < config.p, float(side), 0.0)[:, None].repeat(1, 2)
        start, stop = draws.boxes(lengths, *images.shape[2:])
        places = (torch.arange(size, device=images.device) for size in images.shape[2:])
        rows, columns = ((at >= start[:, i, None]) & (at < stop[:, i, None]) for i, at in enumerate(places))
        box = rows[:, :, None] & columns[:, None]
        return images.clone().masked_fill_(box[:, None], 0), targets  # masked_fill would lose the memory format

    return cut


def usual_size(side: int) -> int:
    """Through both sizes in use, 16 of 32 pixels and 90 of 224: a smaller part of a larger image."""
    return max(1, round(16 * math.pow(side / 32, 0.8876)))
