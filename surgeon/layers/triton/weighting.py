"""Example-weighted and instance-aware evaluation: running moments into which each example's own are mixed.

One launch where a program can hold an example's channels; else three: moments, what is made of them, and the features.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from surgeon.layers.native import Activation, Noise
from surgeon.layers.triton.activations import activated
from surgeon.layers.triton.affine import affine_kernel, values_of
from surgeon.layers.triton.moments import joined_moments, moments_kernel, tile_moments
from surgeon.layers.triton.tiles import (
    TILE,
    Features,
    Groups,
    across,
    along,
    launch,
    own_part,
    places,
    tiling,
    whole_examples,
)


def example_weighted(
    x: Tensor,
    features: Features,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    alpha: Tensor,
    eps: float,
    noise: Noise | None,
    activation: Activation,
) -> Tensor:
    """(N, C, ...) normalised by running moments and each example's own, and an activation."""
    y, values = torch.empty_like(x), features.positions
    rule = {
        "eps": eps,
        "noisy": noise is not None,
        "of_mean": noise.errors / math.sqrt(values) if noise else 0.0,
        # One value has no variance that could be told from noise.
        "of_var": noise.errors * math.sqrt(2 / (values - 1)) if noise and values > 1 else math.inf,
        "share": noise.share if noise else 0.0,
    }
    if (tiles := whole_examples(features)) is not None:
        launch(
            weighting_kernel, tiles.programs, tiles.cb * tiles.rb, x, y, mean, var, alpha, weight, bias,
            activation=activation.number, slope=activation.slope, **rule, **tiles.arguments,
        )  # fmt: skip
        return y
    examples, channels = features.examples, features.channels
    tiles = tiling(features, Groups(examples, 1, 1))
    parts = x.new_empty((2, examples, tiles.chunks, channels), dtype=torch.float32)
    centre, inverse = x.new_empty((2, examples, channels), dtype=torch.float32)
    launch(moments_kernel, tiles.programs, tiles.cb * tiles.rb, x, *parts, **tiles.arguments)
    padded_chunks = triton.next_power_of_2(tiles.chunks)
    cb = min(triton.next_power_of_2(channels), max(1, TILE // padded_chunks))
    launch(
        mixing_kernel, examples * triton.cdiv(channels, cb), padded_chunks * cb,
        *parts, centre, inverse, mean, var, alpha, **rule,
        channels=channels, positions=values, blocks=triton.cdiv(channels, cb), chunks=tiles.chunks,
        chunk_rows=tiles.chunk_rows, wide=tiles.wide, cb=cb, padded_chunks=padded_chunks,
    )  # fmt: skip
    launch(
        affine_kernel, tiles.programs, tiles.cb * tiles.rb, x, y, centre, inverse, weight, bias,
        shared=1, slope=activation.slope, activation=activation.number, **tiles.arguments,
    )  # fmt: skip
    return y


@triton.jit
def beyond(difference, noise):
    """What is left of a difference of either sign when noise is taken off."""
    left = tl.abs(difference) - noise
    kept = tl.where(left < 0, 0.0, left)
    return tl.where(difference < 0, -kept, kept)


@triton.jit
def mixed_moments(var, alpha, ahead, own, eps, of_mean, of_var, share, noisy: tl.constexpr):
    """How far to move the running mean, and the inverse deviation; the example's own mean is `ahead` of the running."""
    moved = tl.zeros_like(ahead)
    if noisy:
        moved = share * beyond(ahead, of_mean * tl.sqrt_rn(var))
        limit = tl.where(of_var == float("inf"), float("inf"), of_var * var)
        changed = var + share * beyond(own - var, limit)
        var = tl.where(changed < 0, 0.0, changed)
        ahead -= moved
    # An infinite value makes an example's moments infinite; at alpha = 0 they do not count, where 0 * inf would be NaN.
    ahead, own = tl.where(alpha == 0, 0.0, ahead), tl.where(alpha == 0, 0.0, own)
    mixed = alpha * own + (1 - alpha) * var + alpha * (1 - alpha) * ahead * ahead
    return moved + alpha * ahead, tl.div_rn(1.0, tl.sqrt_rn(mixed + eps))


@triton.jit
def weighting_kernel(
    x, y, mean, var, alpha, weight, bias, eps, of_mean, of_var, share, slope,
    groups, size, examples, channels, positions, blocks, chunks, chunk_rows,
    noisy: tl.constexpr, activation: tl.constexpr, columns: tl.constexpr, single: tl.constexpr, wide: tl.constexpr,
    cb: tl.constexpr, rb: tl.constexpr,
):  # fmt: skip
    """All of it: each value is read once and written once."""
    block, chunk, _, first, rows = own_part(groups, size, examples, positions, blocks, chunks, wide)
    channel = block * cb + tl.arange(0, cb)
    there = channel < channels
    begin = first * channels * positions
    row = chunk * chunk_rows + tl.arange(0, rb)
    valid = along(row < rows, columns) & across(there, columns)
    at = begin + places(row, channel, channels, positions, columns, single)
    values = tl.load(x + at, mask=valid, other=0.0).to(tl.float32)
    # Relative to the running mean: what both have in common does not cancel.
    values = tl.where(valid, values - across(values_of(mean, channel, there, 0.0), columns), 0.0)
    ahead, own_squares = tile_moments(values, valid, rows.to(tl.float32), columns)
    moved, inverse = mixed_moments(
        values_of(var, channel, there, 1.0), values_of(alpha, channel, there, 0.0), ahead,
        own_squares / rows.to(tl.float32), eps, of_mean, of_var, share, noisy,
    )  # fmt: skip
    scale = inverse * values_of(weight, channel, there, 1.0)
    offset = values_of(bias, channel, there, 0.0)
    normalised = (values - across(moved, columns)) * across(scale, columns) + across(offset, columns)
    tl.store(y + at, activated(normalised, slope, activation), mask=valid)


@triton.jit
def mixing_kernel(
    parts_mean, parts_squares, centre, inverse, mean, var, alpha, eps, of_mean, of_var, share,
    channels, positions, blocks, chunks, chunk_rows,
    noisy: tl.constexpr, wide: tl.constexpr, cb: tl.constexpr, padded_chunks: tl.constexpr,
):  # fmt: skip
    """What has to be subtracted from each example's channels, and the inverse deviation."""
    item = tl.program_id(0)
    if wide:
        item = item.to(tl.int64)
    example = item // blocks
    channel = item % blocks * cb + tl.arange(0, cb)
    there = channel < channels
    rows = example * 0 + positions
    own_mean, own_var = joined_moments(
        parts_mean, parts_squares, example, channel, there, rows, channels, chunks, chunk_rows, padded_chunks
    )
    running = values_of(mean, channel, there, 0.0)
    moved, own_inverse = mixed_moments(
        values_of(var, channel, there, 1.0), values_of(alpha, channel, there, 0.0),
        own_mean - running, own_var, eps, of_mean, of_var, share, noisy,
    )  # fmt: skip
    tl.store(centre + example * channels + channel, running + moved, mask=there)
    tl.store(inverse + example * channels + channel, own_inverse, mask=there)
