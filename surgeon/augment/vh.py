"""Mixes of a vertical with a horizontal concatenation of the same two images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.bc_plus import balance, column
from surgeon.augment.blending import by_cells, row_and_column_sums
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
    images = pairs.images - pairs.images.mean((1, 2, 3), keepdim=True)
    rows, columns = row_and_column_sums(images)
    vertical, horizontal = (_deviation(*both, pairs) for both in ((rows, above), (columns, beside)))
    p, norm = balance(lam, vertical, horizontal)
    mixed, _ = by_cells(Pairs(images, pairs.partner, pairs.draws), above, beside, _cells(p))
    share = torch.lerp(beside.float().mean(1), above.float().mean(1), lam)
    return mixed.div_(column(norm, mixed)), share


def _deviation(sums: Tensor, own: Tensor, pairs: Pairs) -> Tensor:
    """That of a concatenation, from the sums and sums of squares (2, N, size) over the rows or columns of both."""
    import torch

    mean, square = (torch.where(own, sums, sums[:, pairs.partner]).sum(2) / pairs.images[0].numel()).unbind()
    return (square - mean.square()).clamp_(min=0).sqrt_()
