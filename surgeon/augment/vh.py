"""Mixes of a vertical with a horizontal concatenation of the same two images."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from surgeon.augment.bc_plus import SMALL, balance
from surgeon.augment.blending import by_cells
from surgeon.augment.concat import drawn_part, first, left, top
from surgeon.augment.mixing import Pairs, ShareConfig, mix

if TYPE_CHECKING:
    from torch import Tensor


def _cells(vertical: Tensor) -> Tensor:
    """Own weights (N, 2, 2) where the vertical concatenation has this weight and the horizontal one the rest."""
    import torch

    zero, one = torch.zeros_like(vertical), torch.ones_like(vertical)
    return torch.stack([zero, 1 - vertical, vertical, one], 1).view(-1, 2, 2)


@mix("vh-mixup", averages=True)
def vh_mixup(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Mixup of a vertical and a horizontal concatenation."""
    return by_cells(pairs, top(pairs), left(pairs), _cells(pairs.lam()))


@mix("vh-bc-plus", averages=True)
def vh_bc_plus(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """BC+ of a vertical and a horizontal concatenation of both images around their means."""
    import torch

    from surgeon.layers.native import mixing

    height, width = pairs.images.shape[2:]
    above, beside, lam = drawn_part(pairs, height), drawn_part(pairs, width), pairs.lam()
    made = mixing.concats(pairs.images, pairs.partner, above, beside, lam, SMALL)
    if made is None:
        made = _with_torch(pairs, first(above, height), first(beside, width), lam)
    return made, torch.lerp(beside / width, above / height, lam)


def _with_torch(pairs: Pairs, above: Tensor, beside: Tensor, lam: Tensor) -> Tensor:
    """What the kernel computes, by the own rows (N, H) and columns (N, W)."""
    import torch

    images = pairs.images - pairs.images.float().mean((1, 2, 3), keepdim=True).to(pairs.images.dtype)
    others = images.index_select(0, pairs.partner)
    concats = (torch.where(own, images, others).float() for own in (above[:, None, :, None], beside[:, None, None]))
    p, norm = balance(lam, *(concat.std((1, 2, 3), correction=0) for concat in concats))
    made, _ = by_cells(replace(pairs, images=images), above, beside, _cells(p))
    return made / norm.to(made.dtype)[:, None, None, None]
