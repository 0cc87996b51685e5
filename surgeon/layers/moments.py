"""Means and deviations of features, over channels, positions, or groups of them.

The kinds differ in what one moment is taken over: pono over channels at each position, in over positions of each
channel, ln over both, gn over a group of channels and all positions, gpono over a group of channels at each position.
Variances are unbiased, with eps inside the root, in float32 whatever the dtype of the features.
"""

from __future__ import annotations

from enum import StrEnum
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from surgeon.layers.statistics import wide


class Moments(StrEnum):
    """What one mean and deviation are taken over."""

    PONO = "pono"
    IN = "in"
    LN = "ln"
    GN = "gn"
    GPONO = "gpono"

    @property
    def over_positions(self) -> bool:
        return self in (Moments.IN, Moments.LN, Moments.GN)

    @property
    def grouped(self) -> bool:
        return self in (Moments.GN, Moments.GPONO)


def moments(
    x: Tensor,
    kind: Moments | str,
    *,
    groups: int = 4,
    channels_per_group: int | None = None,
    positive_only: bool = False,
    mask: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Mean and deviation of (N, C, ...), shaped to broadcast against it.

    `groups`, or `channels_per_group` in its place, counts for gn and gpono. `positive_only` takes
    biased moments of the positive entries alone. `mask` of shape (N, ...) is true at padding (as
    torch's key_padding_mask), which enters no moments.
    """
    kind = Moments(kind)
    found = grouped_moments(x, kind, groups, channels_per_group, positive_only, mask, eps)
    mean, std = found.mean.squeeze(2), found.std.squeeze(2)
    return (_to_channels(mean, x), _to_channels(std, x)) if kind.grouped else (mean, std)


class Grouped(NamedTuple):
    """Features as (N, groups, channels of a group, ...), and their moments, which broadcast against them."""

    values: Tensor
    mean: Tensor
    std: Tensor
    valid: Tensor | None
    """True where there is no padding; None without a mask."""


def grouped_moments(
    x: Tensor,
    kind: Moments,
    groups: int,
    channels_per_group: int | None,
    positive_only: bool,
    mask: Tensor | None,
    eps: float,
) -> Grouped:
    """The features (N, C, ...) in the groups that share moments, and these; the options are those of `moments`."""
    valid = _valid(x, mask)
    values = _grouped(x, kind, groups, channels_per_group, valid)
    return Grouped(values, *_moments(values, kind, positive_only, valid, eps), valid)


def _grouped(x: Tensor, kind: Moments, groups: int, channels_per_group: int | None, valid: Tensor | None) -> Tensor:
    """(N, groups, channels of a group, ...): every kind reduces dimension 2 of it, some the positions too.

    Padding is zero: whatever it held, be it NaN, reaches neither moments nor gradients.
    """
    if x.dim() < 2:
        raise ValueError(f"Expected features of shape (N, C, ...), got {tuple(x.shape)}")
    channels = x.shape[1]
    if not kind.grouped:
        groups = channels if kind is Moments.IN else 1
    elif channels_per_group is not None:
        groups = channels // channels_per_group if channels_per_group > 0 else 0
    size = channels_per_group if kind.grouped and channels_per_group is not None else channels // max(groups, 1)
    if groups < 1 or groups * size != channels:
        raise ValueError(f"{channels} channels cannot be cut into {groups or 'no'} groups of {size}")
    values = wide(x).reshape(x.shape[0], groups, size, *x.shape[2:])
    return values if valid is None else values.masked_fill(~valid, 0)


def _valid(x: Tensor, mask: Tensor | None) -> Tensor | None:
    """True where there is no padding, for broadcasting against grouped features."""
    if mask is None:
        return None
    expected = (x.shape[0], *x.shape[2:])
    if mask.dtype != torch.bool or mask.shape != expected:
        raise ValueError(f"Expected a bool mask of shape {expected}, got {mask.dtype} of {tuple(mask.shape)}")
    return ~mask[:, None, None]


def _moments(
    values: Tensor, kind: Moments, positive_only: bool, valid: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    dims = tuple(range(2, values.dim())) if kind.over_positions else (2,)
    if positive_only:
        mean, var = _positive_moments(values, dims)
    elif valid is not None and kind.over_positions:
        mean, var = _masked_moments(values, dims, valid)
    else:
        mean, var = _plain_moments(values, dims)
    return mean, (var + eps).sqrt()


def _plain_moments(values: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    count = prod([values.shape[d] for d in dims])  # a list: torch.compile follows no generator into it
    if count < 2:
        raise ValueError(_no_variance(count))
    # Two passes by hand: as exact as torch.var_mean, which on CPU takes ten times as long.
    mean = values.mean(dims, keepdim=True)
    return mean, (values - mean).square().sum(dims, keepdim=True) / (count - 1)


def _masked_moments(values: Tensor, dims: tuple[int, ...], valid: Tensor) -> tuple[Tensor, Tensor]:
    count = valid.sum(dims, keepdim=True) * values.shape[2]
    if bool((count < 2).any()):
        raise ValueError(_no_variance(int(count.min())))
    mean = values.sum(dims, keepdim=True) / count
    squares = (values - mean).square().masked_fill(~valid, 0)
    return mean, squares.sum(dims, keepdim=True) / (count - 1)


def _positive_moments(values: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Biased, and by E[x^2] - E[x]^2 as published: the cancellation is part of what the authors' code computes.

    With few positive entries the deviation nears sqrt(eps), and what is normalised by it grows large.
    """
    positive = values.clamp(min=0)
    count = (values > 0).sum(dims, keepdim=True).clamp(min=1)
    mean = positive.sum(dims, keepdim=True) / count
    square = positive.square().sum(dims, keepdim=True) / count
    return mean, (square - mean.square()).clamp(min=0)


def _no_variance(count: int) -> str:
    return f"Expected at least 2 values for each mean and deviation, got {count}: one value has no variance"


def _to_channels(t: Tensor, x: Tensor) -> Tensor:
    return t.repeat_interleave(x.shape[1] // t.shape[1], dim=1)
