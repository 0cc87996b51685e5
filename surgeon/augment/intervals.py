"""Stretches of rows and of columns, and mixes that replace one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.blending import by_columns, by_rows
from surgeon.augment.draws import Draws
from surgeon.augment.mixing import Pairs, ShareConfig, mix

if TYPE_CHECKING:
    from torch import Tensor


def first(count: Tensor, size: int) -> Tensor:
    """Truth values (N, size): true for the first `count` (N,) of each example."""
    import torch

    return torch.arange(size, device=count.device) < count[:, None]


def between(start: Tensor, stop: Tensor, size: int) -> Tensor:
    """Truth values (N, size): true from `start` to `stop` without it."""
    import torch

    places = torch.arange(size, device=start.device)
    return (places >= start[:, None]) & (places < stop[:, None])


def around_anywhere(draws: Draws, length: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Start and stop of stretches of these lengths (N,), the middle anywhere, cut off at the border."""
    import torch

    start = draws.below(torch.full_like(length, size)) - length // 2
    return start.clamp(min=0), (start + length).clamp(max=size)


def _replaced(pairs: Pairs, size: int) -> tuple[Tensor, Tensor]:
    """Where own rows or columns remain (N, size), and how much further on the partner's are taken (N,)."""
    length = ((1 - pairs.lam()) * size).round().long()
    start, source = (pairs.draws.below(size - length + 1) for _ in range(2))
    return ~between(start, start + length, size), source - start


@mix("random-row-interval")
def random_row_interval(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """A stretch of rows is replaced by one from anywhere in the partner.

    How many is drawn, so that the own share follows Beta(alpha, alpha); where it starts, in either
    image, is uniform among the places where it fits.
    """
    import torch

    own, shift = _replaced(pairs, pairs.images.shape[2])
    return by_rows(pairs, own, torch.stack([shift, torch.zeros_like(shift)], 1))


@mix("random-column-interval")
def random_column_interval(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """A stretch of columns is replaced by one from anywhere in the partner; drawn as for rows."""
    import torch

    own, shift = _replaced(pairs, pairs.images.shape[3])
    return by_columns(pairs, own, torch.stack([torch.zeros_like(shift), shift], 1))
