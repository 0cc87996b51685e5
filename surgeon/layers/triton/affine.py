"""Features normalised by the statistics of their groups, and an activation."""

from __future__ import annotations

import triton
import triton.language as tl

from surgeon.layers.triton.activations import activated
from surgeon.layers.triton.tiles import across, along, own_part, places


@triton.jit
def values_of(tensor, channel, there, default: tl.constexpr):
    """Of each channel, in float32; the default where there is no tensor."""
    if tensor is None:
        values = tl.zeros_like(there.to(tl.float32)) + default
    else:
        values = tl.load(tensor + channel, mask=there, other=default).to(tl.float32)
    return values


@triton.jit
def affine_kernel(
    x, y, centre, inverse, weight, bias, shared, slope,
    groups, size, examples, channels, positions, blocks, chunks, chunk_rows, activation: tl.constexpr,
    columns: tl.constexpr, single: tl.constexpr, wide: tl.constexpr, cb: tl.constexpr, rb: tl.constexpr,
):  # fmt: skip
    """`(x - centre) * inverse * weight + bias`; `shared` channels have a centre and an inverse in common."""
    block, chunk, group, first, rows = own_part(groups, size, examples, positions, blocks, chunks, wide)
    channel = block * cb + tl.arange(0, cb)
    there = channel < channels
    at = group * (channels // shared) + channel // shared
    own_centre = across(tl.load(centre + at, mask=there, other=0.0), columns)
    scale = tl.load(inverse + at, mask=there, other=0.0) * values_of(weight, channel, there, 1.0)
    scale, offset = across(scale, columns), across(values_of(bias, channel, there, 0.0), columns)
    begin = first * channels * positions
    stop = tl.minimum((chunk + 1) * chunk_rows, rows)
    for start in range(chunk * chunk_rows, stop, rb):
        row = start + tl.arange(0, rb)
        valid = along(row < stop, columns) & across(there, columns)
        at_tile = begin + places(row, channel, channels, positions, columns, single)
        values = tl.load(x + at_tile, mask=valid, other=0.0).to(tl.float32)
        tl.store(y + at_tile, activated((values - own_centre) * scale + offset, slope, activation), mask=valid)
