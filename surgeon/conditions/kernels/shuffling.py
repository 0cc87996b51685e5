"""Pixels that change places with near ones, one after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from surgeon.layers.native import corrupting
from surgeon.layers.native.corrupting import Bytes


def shuffle(generator: np.random.Generator, image: Bytes, delta: int, rounds: int) -> Bytes:
    """Each pixel, from the last to the first, becomes one that is up to `delta` away.

    The published generators mean to swap both, but their arrays are views: the other pixel stays as it is.

    Args:
        generator: Which draws how far away.
        image: (H, W, C).
        delta: From -delta to delta - 1, both down and right.
        rounds: How often all pixels are gone through.
    """
    height, width = image.shape[:2]
    shape = (rounds, max(height - 2 * delta, 0), max(width - 2 * delta, 0), 2)
    draws = generator.integers(-delta, delta, size=shape, dtype=np.int8)
    found = corrupting.shuffled(image, draws, delta)
    return found if found is not None else _shuffled(image, draws, delta)


def _shuffled(image: Bytes, draws: npt.NDArray[np.int8], delta: int) -> Bytes:
    """Which pixel is where is followed with a list of numbers: the order matters, so arrays do not help."""
    height, width = image.shape[:2]
    from_where = list(range(height * width))
    steps = (draws[..., 1].astype(int) * width + draws[..., 0]).reshape(len(draws), -1).tolist()
    order = [h * width + w for h in range(height - delta, delta, -1) for w in range(width - delta, delta, -1)]
    for one_round in steps:
        for place, step in zip(order, one_round, strict=True):
            from_where[place] = from_where[place + step]
    found: Bytes = image.reshape(height * width, -1)[from_where].reshape(image.shape)
    return found
