"""How kernels see features (N, C, ...): groups of examples, whose rows are their positions, and tiles of those.

Memory has the positions of a channel side by side, or the channels of a position: then features are in columns. A tile
is some rows of some channels; its last dimension is the one that lies side by side. One program works through a chunk
of a group's rows, for a block of channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

TILE = 4096
"""Values that a program holds at a time."""
WIDEST = 64
"""Channels of a tile in columns: enough to read memory in whole lines."""
PROGRAMS = 1024
"""Enough for any GPU. The order of sums follows from it, so results are the same on all of them."""
MOST_CHUNKS = 64
MOST_VALUES = 16384
"""That one program can hold in registers."""
LARGE = 2**30
"""Features of so many values are addressed by 64 bits."""


class Features(NamedTuple):
    """The sizes of features that are dense in memory, and their order there."""

    examples: int
    channels: int
    positions: int
    columns: bool


class Groups(NamedTuple):
    """Contiguous groups of examples; the last may be of another size."""

    number: int
    size: int
    last: int


@dataclass(frozen=True)
class Tiling:
    """How groups of features are cut into tiles."""

    groups: int
    size: int
    examples: int
    channels: int
    positions: int
    blocks: int
    chunks: int
    chunk_rows: int
    columns: bool
    single: bool
    """Each group is one example."""
    wide: bool
    cb: int
    """Channels of a tile."""
    rb: int
    """Rows of a tile."""

    @property
    def programs(self) -> int:
        return self.groups * self.chunks * self.blocks

    @property
    def arguments(self) -> dict[str, Any]:
        """What every kernel takes that reads features tile by tile."""
        return vars(self)


def features_of(x: Tensor) -> Features:
    """Of (N, C, ...) that holds at least one value and is dense in one of the two orders."""
    examples, channels = x.shape[:2]
    positions = x.numel() // (examples * channels)
    return Features(examples, channels, positions, columns=positions == 1 or not x.is_contiguous())


def tiling(features: Features, groups: Groups, shared: int = 1) -> Tiling:
    """Tiles for chunks of groups, of which `shared` channels have statistics in common."""
    rows = max(groups.size, groups.last) * features.positions
    channels = triton.next_power_of_2(features.channels)
    if features.columns:
        cb = min(channels, WIDEST)
        rb = min(triton.next_power_of_2(rows), TILE // cb)
    else:
        rb = min(triton.next_power_of_2(rows), TILE)
        cb = min(channels, TILE // rb)
    blocks = triton.cdiv(features.channels, cb)
    chunks = min(
        triton.cdiv(rows, rb),
        max(1, PROGRAMS // (groups.number * blocks)),
        max(1, min(MOST_CHUNKS, MOST_VALUES // triton.next_power_of_2(shared))),
    )
    chunk_rows = triton.cdiv(triton.cdiv(rows, chunks), rb) * rb
    return _tiling(features, groups, blocks, triton.cdiv(rows, chunk_rows), chunk_rows, cb, rb)


def whole_examples(features: Features) -> Tiling | None:
    """Tiles that hold all positions of an example's channels, or None if these are too many."""
    rb, channels = triton.next_power_of_2(features.positions), triton.next_power_of_2(features.channels)
    # In columns, fewer than 16 channels would waste most of what is read.
    most = min(WIDEST, max(2 * TILE // rb, 16)) if features.columns else max(TILE // rb, 1)
    cb = min(channels, most)
    if rb * cb > MOST_VALUES:
        return None
    groups = Groups(features.examples, 1, 1)
    return _tiling(features, groups, triton.cdiv(features.channels, cb), 1, features.positions, cb, rb)


def _tiling(features: Features, groups: Groups, blocks: int, chunks: int, chunk_rows: int, cb: int, rb: int) -> Tiling:
    examples, channels, positions, columns = features
    return Tiling(
        groups.number, groups.size, examples, channels, positions, blocks, chunks, chunk_rows, columns,
        single=groups.number == examples, wide=examples * channels * positions >= LARGE, cb=cb, rb=rb,
    )  # fmt: skip


def launch(kernel: Any, programs: int, values: int, *tensors: Tensor | None, **arguments: Any) -> None:
    """Run a kernel whose programs hold so many values each."""
    kernel[(programs,)](*tensors, **arguments, num_warps=warps(values))


def warps(values: int) -> int:
    """So many that a thread holds 16 values, or more of the largest tiles."""
    return min(16, max(1, values // 512))


@triton.jit
def own_part(groups, size, examples, positions, blocks, chunks, wide: tl.constexpr):
    """Of this program: block of channels, chunk, group, its first example, and how many rows the group has."""
    item = tl.program_id(0)
    if wide:  # and so is all that follows from it
        item = item.to(tl.int64)
    group = item // blocks // chunks
    first = group * size
    rows = tl.where(group == groups - 1, examples - first, size) * positions
    return item % blocks, item // blocks % chunks, group, first, rows


@triton.jit
def across(values, columns: tl.constexpr):
    """Values of channels, to go with a tile."""
    return values[None, :] if columns else values[:, None]


@triton.jit
def along(values, columns: tl.constexpr):
    """Values of rows, to go with a tile."""
    return values[:, None] if columns else values[None, :]


@triton.jit
def places(row, channel, channels, positions, columns: tl.constexpr, single: tl.constexpr):
    """Where the values of a tile are, from the beginning of their group."""
    if columns:
        place = row[:, None] * channels + channel[None, :]
    elif single:
        place = channel[:, None] * positions + row[None, :]
    else:
        place = channel[:, None] * positions + (row // positions * channels * positions + row % positions)[None, :]
    return place
