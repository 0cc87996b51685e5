"""Mixes of a vertical with a horizontal concatenation of the same two images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.bc_plus import balance, without_mean
from surgeon.augment.blending import by_cells
from surgeon.augment.concat import left, top
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

    pairs, rows, columns, lam = without_mean(pairs), top(pairs), left(pairs), pairs.lam()
    images = pairs.images.float()
    sums = torch.stack([images.sum(1), images.square().sum(1)])
    p, norm = balance(lam, _deviation(sums.sum(3), pairs, rows), _deviation(sums.sum(2), pairs, columns))
    share = torch.lerp(columns.float().mean(1), rows.float().mean(1), lam)
    mixed, _ = by_cells(pairs, rows, columns, _cells(p))
    return mixed.div_(norm.to(mixed.dtype)[:, None, None, None]), share


def _deviation(sums: Tensor, pairs: Pairs, own: Tensor) -> Tensor:
    """The deviation of a concatenation, from the sums and sums of squares of each row or column (2, N, size)."""
    import torch

    moments = torch.where(own, sums, sums[:, pairs.partner]).sum(2) / pairs.images[0].numel()
    return (moments[1] - moments[0].square()).clamp(min=0).sqrt()
