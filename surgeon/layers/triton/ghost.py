"""BatchNorm of groups of examples in training, forward: of one channel each, or of groups of channels."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from surgeon.layers import native
from surgeon.layers.triton.affine import affine_kernel
from surgeon.layers.triton.moments import joined_moments, moments_kernel
from surgeon.layers.triton.tiles import WIDEST, Features, Groups, launch, own_part, tiling


def forward(
    x: Tensor,
    features: Features,
    weight: Tensor | None,
    bias: Tensor | None,
    groups: Groups,
    eps: float,
    channel_groups: int,
) -> native.Groups:
    """Each group of examples, and of channels, normalised by itself."""
    channels, shared = features.channels, features.channels // channel_groups
    tiles = tiling(features, groups, shared)
    parts = x.new_empty((2, groups.number, tiles.chunks, channels), dtype=torch.float32)
    mean, var = x.new_empty((2, groups.number, channels), dtype=torch.float32)
    centre, inverse = x.new_empty((2, groups.number, channel_groups), dtype=torch.float32)
    y = torch.empty_like(x)
    launch(moments_kernel, tiles.programs, tiles.cb * tiles.rb, x, *parts, **tiles.arguments)
    sets = sets_at_once(channel_groups, shared)
    padded = triton.next_power_of_2(shared), triton.next_power_of_2(tiles.chunks)
    launch(
        sharing_kernel, groups.number * triton.cdiv(channel_groups, sets), padded[0] * padded[1] * sets,
        *parts, mean, var, centre, inverse, eps=eps, shared=shared,
        groups=groups.number, size=groups.size, examples=features.examples, channels=channels,
        positions=features.positions, blocks=triton.cdiv(channel_groups, sets), chunks=tiles.chunks,
        chunk_rows=tiles.chunk_rows, wide=tiles.wide,
        sets=sets, padded_shared=padded[0], padded_chunks=padded[1],
    )  # fmt: skip
    launch(
        affine_kernel, tiles.programs, tiles.cb * tiles.rb, x, y, centre, inverse, weight, bias,
        shared=shared, slope=0.0, activation=0, **tiles.arguments,
    )  # fmt: skip
    return native.Groups(y, mean, var, centre, inverse)


def sets_at_once(channel_groups: int, shared: int) -> int:
    """How many groups of channels a program handles that makes something of the sums of chunks."""
    return min(triton.next_power_of_2(channel_groups), max(1, WIDEST // triton.next_power_of_2(shared)))


@triton.jit
def channels_of_sets(block, channels, shared, sets: tl.constexpr, padded_shared: tl.constexpr):
    """The channels of this block's sets, side by side; which are there; and the sets."""
    lane = tl.arange(0, sets * padded_shared)
    number, within = block * sets + lane // padded_shared, lane % padded_shared
    channel = number * shared + within
    own = block * sets + tl.arange(0, sets)
    return channel, (within < shared) & (channel < channels), own, own * shared < channels


@triton.jit
def sharing_kernel(
    parts_mean, parts_squares, mean, var, centre, inverse, eps, shared,
    groups, size, examples, channels, positions, blocks, chunks, chunk_rows, wide: tl.constexpr,
    sets: tl.constexpr, padded_shared: tl.constexpr, padded_chunks: tl.constexpr,
):  # fmt: skip
    """Moments of each channel, and centre and inverse deviation of the channels that share them."""
    block, _, group, _, rows = own_part(groups, size, examples, positions, blocks, 1, wide)
    channel, there, own, inside = channels_of_sets(block, channels, shared, sets, padded_shared)
    own_mean, own_var = joined_moments(
        parts_mean, parts_squares, group, channel, there, rows, channels, chunks, chunk_rows, padded_chunks
    )
    tl.store(mean + group * channels + channel, own_mean, mask=there)
    tl.store(var + group * channels + channel, own_var, mask=there)
    # Relative to the first channel of each set: a large common offset does not cancel.
    of_first = tl.where(tl.arange(0, padded_shared)[None, :] == 0, tl.reshape(own_mean, [sets, padded_shared]), 0.0)
    origin = tl.sum(of_first, 1)
    present = tl.reshape(there, [sets, padded_shared])
    relative = tl.where(present, tl.reshape(own_mean, [sets, padded_shared]) - origin[:, None], 0.0)
    middle = tl.sum(relative, 1) / shared
    apart = relative - middle[:, None]
    spread = tl.where(present, tl.reshape(own_var, [sets, padded_shared]) + apart * apart, 0.0)
    at = group * (channels // shared) + own
    tl.store(centre + at, origin + middle, mask=inside)
    tl.store(inverse + at, tl.div_rn(1.0, tl.sqrt_rn(tl.sum(spread, 1) / shared + eps)), mask=inside)
