"""Mixes that replace a box."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.blending import by_cells
from surgeon.augment.draws import Draws
from surgeon.augment.intervals import around_anywhere, between
from surgeon.augment.mixing import MixConfig, Pairs, ShareConfig, mix

if TYPE_CHECKING:
    from torch import Tensor


def _with_box(pairs: Pairs, rows: Tensor, columns: Tensor, shift: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The partner's pixels where both rows (N, H) and columns (N, W) are true."""
    import torch

    outside = torch.tensor([[[1.0, 1.0], [1.0, 0.0]]], device=rows.device)
    return by_cells(pairs, rows, columns, outside, shift)


@mix("cutmix", paper="Yun et al., ICCV 2019")
def cutmix(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """A box of the image's shape is replaced by that of the partner.

    It has the share 1 - lam of the area and its middle anywhere; what is cut off at the border goes to
    the image's own share.
    """
    height, width = pairs.images.shape[2:]
    side = (1 - pairs.lam()).sqrt()
    rows, columns = (
        between(*around_anywhere(pairs.draws, (side * size).round().long(), size), size) for size in (height, width)
    )
    return _with_box(pairs, rows, columns)


@mix("random-square", config=MixConfig)
def random_square(pairs: Pairs, config: MixConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """A square of half the image's side, its middle anywhere, is replaced by one from anywhere in the partner."""
    import torch

    count, _, height, width = pairs.images.shape
    side = torch.full((count,), min(height, width) // 2, device=pairs.images.device)
    (rows, down), (columns, right) = (_stretch(pairs.draws, side, size) for size in (height, width))
    return _with_box(pairs, rows, columns, torch.stack([down, right], 1))


def _stretch(draws: Draws, length: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Where a stretch is (N, size), and how much further on it is taken from in the partner (N,)."""
    start, stop = around_anywhere(draws, length, size)
    return between(start, stop, size), draws.below(size - (stop - start) + 1) - start
