"""A plasma fractal: random heights by the diamond-square method, on a map that joins at its edges."""

from __future__ import annotations

import numpy as np

from surgeon.layers.native.corrupting import Floats

FIRST = 100.0
"""The first displacement is up to its square."""


def plasma(generator: np.random.Generator, height: int, width: int, decay: float) -> Floats:
    """Heights (height, width), a part of a square map whose heights are from 0 to 1.

    Args:
        generator: From which all displacements are drawn.
        height: Of the part, which is the upper left one.
        width: Of the part.
        decay: By whose square the displacements become smaller whenever the grid becomes twice as fine.
    """
    side = max(1 << (max(height, width) - 1).bit_length(), 2)
    heights = np.zeros((side, side), dtype=np.float32)
    drawn = generator.random(side * side - 1, dtype=np.float32)
    drawn *= 2
    drawn -= 1
    step, reach, used = side, FIRST, 0
    while step >= 2:
        half, count = step // 2, (side // step) ** 2
        wobble = drawn[used : used + 3 * count].reshape(3, side // step, side // step) * np.float32(reach * reach)
        corners = heights[::step, ::step]
        middles = corners + _next(corners, 0)
        middles = (middles + _next(middles, 1)) / 4 + wobble[0]
        heights[half::step, half::step] = middles
        heights[::step, half::step] = (middles + _previous(middles, 0) + corners + _next(corners, 1)) / 4 + wobble[1]
        heights[half::step, ::step] = (middles + _previous(middles, 1) + corners + _next(corners, 0)) / 4 + wobble[2]
        step, reach, used = half, reach / decay, used + 3 * count
    heights -= heights.min()
    heights /= heights.max()
    return heights[:height, :width]


def _next(grid: Floats, axis: int) -> Floats:
    return np.concatenate((grid[1:], grid[:1]) if axis == 0 else (grid[:, 1:], grid[:, :1]), axis)


def _previous(grid: Floats, axis: int) -> Floats:
    return np.concatenate((grid[-1:], grid[:-1]) if axis == 0 else (grid[:, -1:], grid[:, :-1]), axis)
