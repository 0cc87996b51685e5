"""Single frequencies and low-pass filters in float64, by Fourier transforms that are written out as sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Spectrum = NDArray[np.complex128]


def transform(image: Array | Spectrum) -> Spectrum:
    """The sum over y and x of image[y, x] exp(-2 pi i (u y / H + v x / W))."""
    height, width = image.shape
    return np.asarray(_waves(height, -1) @ image @ _waves(width, -1).T)


def inverse(spectrum: Spectrum) -> Spectrum:
    height, width = spectrum.shape
    return np.asarray(_waves(height, 1) @ spectrum @ _waves(width, 1).T / (height * width))


def _waves(length: int, sign: int) -> Spectrum:
    numbers = np.arange(length)
    return np.asarray(np.exp(sign * 2j * np.pi * np.outer(numbers, numbers) / length))


def basis_image(height: int, width: int, down: int, right: int) -> Array:
    """Real, of norm 1, with a spectrum that is 0 but at (down, right) and at the point opposite."""
    spectrum = np.zeros((height, width), np.complex128)
    spectrum[down % height, right % width] += 1
    spectrum[-down % height, -right % width] += 1
    wave = inverse(spectrum).real
    return np.asarray(wave / np.sqrt((wave**2).sum()))


def low_pass(image: Array, rows: int, columns: int) -> Array:
    """The real part of what a centred window of rows x columns of the shifted spectrum holds."""
    height, width = image.shape
    shifted = np.roll(transform(image), (height // 2, width // 2), (0, 1))  # frequency 0 is at (H // 2, W // 2)
    window = np.zeros((height, width))
    top, left = height // 2 - rows // 2, width // 2 - columns // 2
    window[top : top + rows, left : left + columns] = 1
    return np.asarray(inverse(np.roll(shifted * window, (-(height // 2), -(width // 2)), (0, 1))).real)
