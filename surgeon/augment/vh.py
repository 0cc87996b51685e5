"""Mixes of a vertical with a horizontal concatenation of the same two images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.bc_plus import balance
from surgeon.augment.blending import by_cells, moments, waves_by_cells
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

    above, beside, lam = top(pairs), left(pairs), pairs.lam()
    mean, rows, columns = moments(pairs.images)
    vertical, horizontal = _deviation(rows, above, pairs), _deviation(columns, beside, pairs)
    p, norm = balance(lam, vertical, horizontal)
    share = torch.lerp(beside.float().mean(1), above.float().mean(1), lam)
    return waves_by_cells(pairs, mean, above, beside, _cells(p), norm), share


def _deviation(sums: Tensor, own: Tensor, pairs: Pairs) -> Tensor:
    """That of a concatenation, from the sums and sums of squares (N, 2, size) over the rows or columns of both."""
    import torch

    chosen = torch.where(own[:, None], sums, sums.index_select(0, pairs.partner))
    mean, square = chosen.sum(2).div_(pairs.images[0].numel()).unbind(1)
    return (square - mean.square()).clamp_(min=0).sqrt_()
