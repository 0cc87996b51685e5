"""Moments of groups: of each chunk of rows by itself, and then of all together.

Values are taken relative to some that are near, and sums of squares about the mean of their own tile, so a large common
offset does not cancel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from surgeon.layers.triton.tiles import across, along, own_part, places


@triton.jit
def tile_moments(values, valid, count, columns: tl.constexpr):
    """Mean, and sum of squares about it, of each channel of a tile that is 0 where it is not valid."""
    mean = tl.sum(values, 0 if columns else 1) / count
    apart = tl.where(valid, values - across(mean, columns), 0.0)
    return mean, tl.sum(apart * apart, 0 if columns else 1)


@triton.jit
def middle_of_few(
    x, begin, stop, channel, there, channels, positions, columns: tl.constexpr, single: tl.constexpr
):  # fmt: skip
    """The mean of a few rows: a single one may be far from all others."""
    row = begin + tl.arange(0, 16)
    valid = along(row < stop, columns) & across(there, columns)
    values = tl.load(x + places(row, channel, channels, positions, columns, single), mask=valid, other=0.0)
    return tl.sum(values.to(tl.float32), 0 if columns else 1) / tl.minimum(tl.maximum(stop - begin, 1), 16)


@triton.jit
def moments_kernel(
    x, mean, squares, groups, size, examples, channels, positions, blocks, chunks, chunk_rows,
    columns: tl.constexpr, single: tl.constexpr, wide: tl.constexpr, cb: tl.constexpr, rb: tl.constexpr,
):  # fmt: skip
    """Mean, and sum of squares about it: (groups, chunks, channels) each."""
    block, chunk, group, first, rows = own_part(groups, size, examples, positions, blocks, chunks, wide)
    channel = block * cb + tl.arange(0, cb)
    there = channel < channels
    x += first * channels * positions
    begin, stop = chunk * chunk_rows, tl.minimum((chunk + 1) * chunk_rows, rows)
    origin = middle_of_few(x, begin, stop, channel, there, channels, positions, columns, single)
    all_mean, all_squares = tl.zeros([cb], tl.float32), tl.zeros([cb], tl.float32)
    for start in range(begin, stop, rb):
        row = start + tl.arange(0, rb)
        valid = along(row < stop, columns) & across(there, columns)
        values = tl.load(x + places(row, channel, channels, positions, columns, single), mask=valid, other=0.0)
        values = tl.where(valid, values.to(tl.float32) - across(origin, columns), 0.0)
        before = (start - begin).to(tl.float32)
        count = tl.minimum(stop - start, rb).to(tl.float32)
        own_mean, own_squares = tile_moments(values, valid, count, columns)
        ahead, share = own_mean - all_mean, count / (before + count)
        all_mean += ahead * share
        all_squares += own_squares + ahead * ahead * before * share
    at = (group * chunks + chunk) * channels + channel
    tl.store(mean + at, origin + all_mean, mask=there)
    tl.store(squares + at, all_squares, mask=there)


@triton.jit
def joined_moments(
    mean, squares, group, channel, there, rows, channels, chunks, chunk_rows, padded_chunks: tl.constexpr
):
    """Mean and biased variance of a group's channels, from those of its chunks."""
    chunk = tl.arange(0, padded_chunks).to(rows.dtype)
    count = tl.minimum(tl.maximum(rows - chunk * chunk_rows, 0), chunk_rows)
    count = tl.where(chunk < chunks, count, 0).to(tl.float32)[:, None]
    at = (group * chunks + chunk)[:, None] * channels + channel[None, :]
    valid = (chunk < chunks)[:, None] & there[None, :]
    origin = tl.load(mean + group * chunks * channels + channel, mask=there, other=0.0)
    own_mean = tl.load(mean + at, mask=valid, other=0.0) - origin[None, :]
    own_squares = tl.load(squares + at, mask=valid, other=0.0)
    total = rows.to(tl.float32)
    together = tl.sum(own_mean * count, 0) / total
    apart = own_mean - together[None, :]
    return origin + together, tl.sum(own_squares + apart * apart * count, 0) / total
