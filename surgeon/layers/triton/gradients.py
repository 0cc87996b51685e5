"""The gradients of ghost.py: sums over each group, what is made of them, and the gradient of the input."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from surgeon.layers.triton.affine import values_of
from surgeon.layers.triton.ghost import channels_of_sets, sets_at_once
from surgeon.layers.triton.tiles import Features, Groups, across, along, launch, own_part, places, tiling


def backward(
    grad: Tensor,
    x: Tensor,
    features: Features,
    weight: Tensor | None,
    groups: Groups,
    centre: Tensor,
    inverse: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """For input, weight and bias; `grad` has the strides of x."""
    channels, channel_groups = features.channels, centre.shape[1]
    shared = channels // channel_groups
    tiles = tiling(features, groups, shared)
    parts = x.new_empty((2, groups.number, tiles.chunks, channels), dtype=torch.float32)
    of_affine = x.new_empty((2, groups.number, channels), dtype=torch.float32)
    slope, offset = torch.empty_like(centre), torch.empty_like(centre)
    grad_x = torch.empty_like(x)
    launch(
        products_kernel, tiles.programs, tiles.cb * tiles.rb, x, grad, centre, *parts, shared=shared, **tiles.arguments
    )
    sets = sets_at_once(channel_groups, shared)
    padded = triton.next_power_of_2(shared), triton.next_power_of_2(tiles.chunks)
    launch(
        terms_kernel, groups.number * triton.cdiv(channel_groups, sets), padded[0] * padded[1] * sets,
        *parts, weight, inverse, *of_affine, slope, offset, shared=shared,
        groups=groups.number, size=groups.size, examples=features.examples, channels=channels,
        positions=features.positions, blocks=triton.cdiv(channel_groups, sets), chunks=tiles.chunks,
        wide=tiles.wide, sets=sets, padded_shared=padded[0], padded_chunks=padded[1],
    )  # fmt: skip
    launch(
        input_kernel, tiles.programs, tiles.cb * tiles.rb, x, grad, grad_x, centre, inverse, weight, slope, offset,
        shared=shared, **tiles.arguments,
    )  # fmt: skip
    return (grad_x, *of_affine.sum(1))


@triton.jit
def products_kernel(
    x, grad, centre, sums, products, shared, groups, size, examples, channels, positions, blocks, chunks, chunk_rows,
    columns: tl.constexpr, single: tl.constexpr, wide: tl.constexpr, cb: tl.constexpr, rb: tl.constexpr,
):  # fmt: skip
    """Sums of the gradient, and of its product with the deviations: (groups, chunks, channels) each."""
    block, chunk, group, first, rows = own_part(groups, size, examples, positions, blocks, chunks, wide)
    channel = block * cb + tl.arange(0, cb)
    there = channel < channels
    own_centre = tl.load(centre + group * (channels // shared) + channel // shared, mask=there, other=0.0)
    begin = first * channels * positions
    stop = tl.minimum((chunk + 1) * chunk_rows, rows)
    sum_tile = tl.zeros([rb, cb] if columns else [cb, rb], tl.float32)
    product_tile = tl.zeros([rb, cb] if columns else [cb, rb], tl.float32)
    for start in range(chunk * chunk_rows, stop, rb):
        row = start + tl.arange(0, rb)
        valid = along(row < stop, columns) & across(there, columns)
        at_tile = begin + places(row, channel, channels, positions, columns, single)
        upstream = tl.load(grad + at_tile, mask=valid, other=0.0).to(tl.float32)
        values = tl.load(x + at_tile, mask=valid, other=0.0).to(tl.float32)
        sum_tile += upstream
        product_tile += tl.where(valid, upstream * (values - across(own_centre, columns)), 0.0)
    at = (group * chunks + chunk) * channels + channel
    tl.store(sums + at, tl.sum(sum_tile, 0 if columns else 1), mask=there)
    tl.store(products + at, tl.sum(product_tile, 0 if columns else 1), mask=there)


@triton.jit
def terms_kernel(
    sums, products, weight, inverse, grad_weight, grad_bias, slope, offset, shared,
    groups, size, examples, channels, positions, blocks, chunks, wide: tl.constexpr,
    sets: tl.constexpr, padded_shared: tl.constexpr, padded_chunks: tl.constexpr,
):  # fmt: skip
    """Gradients of weight and bias from each group, and the terms of the input's gradient."""
    block, _, group, _, rows = own_part(groups, size, examples, positions, blocks, 1, wide)
    channel, there, own, inside = channels_of_sets(block, channels, shared, sets, padded_shared)
    chunk = tl.arange(0, padded_chunks).to(rows.dtype)
    at = (group * chunks + chunk)[:, None] * channels + channel[None, :]
    valid = (chunk < chunks)[:, None] & there[None, :]
    own_sum = tl.sum(tl.load(sums + at, mask=valid, other=0.0), 0)
    own_product = tl.sum(tl.load(products + at, mask=valid, other=0.0), 0)
    sets_before = group * (channels // shared)
    of_channel = tl.load(inverse + sets_before + channel // shared, mask=there, other=0.0)
    tl.store(grad_weight + group * channels + channel, own_product * of_channel, mask=there)
    tl.store(grad_bias + group * channels + channel, own_sum, mask=there)
    own_weight = tl.where(there, values_of(weight, channel, there, 1.0), 0.0)
    own_inverse = tl.load(inverse + sets_before + own, mask=inside, other=0.0)
    count = rows.to(tl.float32) * shared
    all_sums = tl.sum(tl.reshape(own_weight * own_sum, [sets, padded_shared]), 1)
    all_products = tl.sum(tl.reshape(own_weight * own_product, [sets, padded_shared]), 1)
    of_products = all_products * own_inverse * own_inverse * own_inverse / count
    tl.store(slope + sets_before + own, of_products, mask=inside)
    tl.store(offset + sets_before + own, all_sums * own_inverse / count, mask=inside)


@triton.jit
def input_kernel(
    x, grad, grad_x, centre, inverse, weight, slope, offset, shared,
    groups, size, examples, channels, positions, blocks, chunks, chunk_rows,
    columns: tl.constexpr, single: tl.constexpr, wide: tl.constexpr, cb: tl.constexpr, rb: tl.constexpr,
):  # fmt: skip
    """`grad * inverse * weight - (x - centre) * slope - offset`."""
    block, chunk, group, first, rows = own_part(groups, size, examples, positions, blocks, chunks, wide)
    channel = block * cb + tl.arange(0, cb)
    there = channel < channels
    at = group * (channels // shared) + channel // shared
    own_centre = across(tl.load(centre + at, mask=there, other=0.0), columns)
    scale = tl.load(inverse + at, mask=there, other=0.0) * values_of(weight, channel, there, 1.0)
    own_slope = across(tl.load(slope + at, mask=there, other=0.0), columns)
    scale, constant = across(scale, columns), across(tl.load(offset + at, mask=there, other=0.0), columns)
    begin = first * channels * positions
    stop = tl.minimum((chunk + 1) * chunk_rows, rows)
    for start in range(chunk * chunk_rows, stop, rb):
        row = start + tl.arange(0, rb)
        valid = along(row < stop, columns) & across(there, columns)
        at_tile = begin + places(row, channel, channels, positions, columns, single)
        upstream = tl.load(grad + at_tile, mask=valid, other=0.0).to(tl.float32)
        values = tl.load(x + at_tile, mask=valid, other=0.0).to(tl.float32)
        tl.store(grad_x + at_tile, upstream * scale - (values - own_centre) * own_slope - constant, mask=valid)
