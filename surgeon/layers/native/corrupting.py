"""The kernels of image corruptions: on one image (height, width, channels) each, on arrays of numpy.

As all kernels, each answers None where it does not apply. What they compute: surgeon/conditions/kernels/.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from surgeon.layers.native import _library

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int32]


def filtered(image: Floats, rows: Places, columns: Places, offsets: Places, weights: Floats) -> Floats | None:
    """The sum of the image shifted by `offsets` (taps, 2: down, right); rows and columns are those with the margin."""
    if (library := _library()) is None:
        return None
    height, width, items = image.shape
    padded, found = np.empty((len(rows), len(columns), items), np.float32), np.empty_like(image)
    library.corrupt_filter(
        image.ctypes.data, height, width, items, rows.ctypes.data, columns.ctypes.data, (len(rows) - height) // 2,
        offsets.ctypes.data, weights.ctypes.data, len(weights), padded.ctypes.data, found.ctypes.data,
    )  # fmt: skip
    return found


def shuffled(image: Bytes, draws: npt.NDArray[np.int8], delta: int) -> Bytes | None:
    """Pixels replaced by near ones, with draws (rounds, rows, columns, 2)."""
    if (library := _library()) is None:
        return None
    found = image.copy()
    library.corrupt_shuffle(found.ctypes.data, *image.shape, draws.ctypes.data, delta, len(draws))
    return found


def zoomed(image: Floats, rows: Places, below: Floats, columns: Places, right: Floats) -> Floats | None:
    """The sum of enlargements: for each, first rows and columns (zooms, side) to interpolate at, and how far beyond."""
    if (library := _library()) is None:
        return None
    height, width, items = image.shape
    found, scratch = np.empty_like(image), np.empty(width * items, np.float32)
    library.corrupt_zoom(
        image.ctypes.data, height, width, items, rows.ctypes.data, below.ctypes.data, columns.ctypes.data,
        right.ctypes.data, len(rows), scratch.ctypes.data, found.ctypes.data,
    )  # fmt: skip
    return found


def sampled(image: Floats, rows: Floats, columns: Floats) -> Floats | None:
    """The image interpolated at rows and columns (height, width)."""
    if (library := _library()) is None:
        return None
    found = np.empty_like(image)
    library.corrupt_sample(
        image.ctypes.data, *image.shape, rows.ctypes.data, columns.ctypes.data, found.ctypes.data
    )  # fmt: skip
    return found


def drawn(image: Bytes, uniform: Floats, cumulative: Floats, guide: Places, byte_of: Bytes) -> Bytes | None:
    """Bytes drawn for each byte from a distribution, given by its cumulative probabilities (256, counts)."""
    if (library := _library()) is None:
        return None
    found = np.empty_like(image)
    library.corrupt_draw(
        image.ctypes.data, uniform.ctypes.data, image.size, cumulative.ctypes.data, cumulative.shape[1],
        guide.ctypes.data, byte_of.ctypes.data, found.ctypes.data,
    )  # fmt: skip
    return found


def normals(words: npt.NDArray[np.uint32], quantiles: Floats, tail: Floats, scale: float) -> Floats | None:
    """Gaussian numbers, one for each word of random bits."""
    if (library := _library()) is None:
        return None
    found = np.empty(words.shape, np.float32)
    library.corrupt_normals(
        words.ctypes.data, words.size, quantiles.ctypes.data, tail.ctypes.data, scale, found.ctypes.data
    )  # fmt: skip
    return found
