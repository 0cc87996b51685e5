"""Images interpolated between their pixels: enlarged, or bent."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from surgeon.layers.native import corrupting
from surgeon.layers.native.corrupting import Floats, Places


def sum_of_zooms(image: Floats, zooms: tuple[float, ...], centred: bool) -> Floats:
    """The sum of enlargements of the middle of an image (H, W, C), each cut to the size of the image.

    Args:
        image: As it is.
        zooms: By how much each is enlarged; from 1.
        centred: Whether an enlargement that is too large loses its margin on all sides, or at the end alone.
    """
    (rows, below), (columns, right) = (_places(side, zooms, centred) for side in image.shape[:2])
    found = corrupting.zoomed(image, rows, below, columns, right)
    if found is not None:
        return found
    found = np.zeros_like(image)
    for row, down, column, across in zip(rows, below[..., None, None], columns, right[..., None], strict=True):
        lines = image[row] + down * (image[row + 1] - image[row])
        found += lines[:, column] + across * (lines[:, column + 1] - lines[:, column])
    return found


@lru_cache(maxsize=64)
def _places(side: int, zooms: tuple[float, ...], centred: bool) -> tuple[Places, Floats]:
    """For each enlargement, the pixel before each new one, and how far beyond it the new one lies."""
    at = np.stack([zoomed_places(side, side, zoom, centred) for zoom in zooms])
    first = np.minimum(at.astype(np.int32), side - 2)
    return first, (at - first).astype(np.float32)


def zoomed_places(side: int, wanted: int, zoom: float, centred: bool) -> npt.NDArray[np.float64]:
    """Where the pixels of the enlarged middle of an image lie in it: its corner pixels stay corner pixels."""
    part = cut_side(side, zoom)
    enlarged = max(round(part * zoom), 2)
    trim = max(enlarged - wanted, 0) // 2 if centred else 0
    at = np.minimum(np.arange(wanted) + trim, enlarged - 1) * ((part - 1) / (enlarged - 1))
    return at + (side - part) // 2


def cut_side(side: int, zoom: float) -> int:
    """How much of a side is enlarged to the whole of it."""
    return math.ceil(side / zoom)


def enlarge(image: Floats, zoom: float, shape: tuple[int, int]) -> Floats:
    """An image (h, w) interpolated to a larger one; it is what `sum_of_zooms` cuts out of the middle."""
    for axis, (side, wanted) in enumerate(zip(image.shape, shape, strict=True)):
        enlarged = max(round(side * zoom), 2)
        at = np.minimum(np.arange(wanted), enlarged - 1) * ((side - 1) / (enlarged - 1))
        first = np.minimum(at.astype(np.int32), max(side - 2, 0))
        beyond = (at - first).astype(np.float32)
        beyond = beyond if axis else beyond[:, None]
        low = image.take(first, axis)
        image = low + beyond * (image.take(np.minimum(first + 1, side - 1), axis) - low)
    return np.ascontiguousarray(image)


def sample(image: Floats, rows: Floats, columns: Floats) -> Floats:
    """An image (H, W, C) interpolated at rows and columns (H, W), which lie within it."""
    rows, columns = np.ascontiguousarray(rows, np.float32), np.ascontiguousarray(columns, np.float32)
    found = corrupting.sampled(image, rows, columns)
    if found is not None:
        return found
    (upper, lower, below), (near, far, right) = (
        _neighbours(at, side) for at, side in zip((rows, columns), image.shape[:2], strict=True)
    )
    top = image[upper, near] + right * (image[upper, far] - image[upper, near])
    bottom = image[lower, near] + right * (image[lower, far] - image[lower, near])
    between: Floats = top + below * (bottom - top)
    return between


def _neighbours(at: Floats, side: int) -> tuple[Places, Places, Floats]:
    within = at.clip(0, side - 1)
    first = within.astype(np.int32)
    second = np.minimum(first + 1, side - 1).astype(np.int32)
    return first, second, (within - first).astype(np.float32)[..., None]


def reflect(at: Floats, side: int) -> Floats:
    """Places beyond the image, reflected into it at the outer edges of its border pixels: from -0.5 to side - 0.5."""
    folded = np.mod(at + 0.5, 2 * side)
    found: Floats = np.minimum(folded, 2 * side - folded) - 0.5
    return found


def mirror(at: Floats, side: int) -> Floats:
    """Places beyond the image, mirrored into it at the middles of its border pixels."""
    period = max(2 * side - 2, 1)
    folded = np.mod(at, period)
    found: Floats = np.minimum(folded, period - folded)
    return found
