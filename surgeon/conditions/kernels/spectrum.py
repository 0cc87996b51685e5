"""Waves of a single frequency, and images without their high frequencies."""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor


def cycles(share: float, length: int) -> int:
    """How often a wave of a frequency between -1 and 1 goes up and down over a length: at most every other pixel."""
    return round(share * (length // 2))


def basis_image(height: int, width: int, row: float, column: float) -> Tensor:
    """The cosine of a frequency, (H, W), of L2 norm 1: its spectrum is 0 but at that frequency and its mirror image."""
    down, right = (torch.arange(length, dtype=torch.float64) / length for length in (height, width))
    wave: Tensor = torch.cos(2 * pi * (cycles(row, height) * down[:, None] + cycles(column, width) * right))
    unit: Tensor = wave / wave.norm()
    return unit


def low_frequencies(pixels: Tensor, share: float) -> Tensor:
    """Images of which a centred rectangle of the spectrum is kept, that share of its height and width.

    An even number of frequencies has no centre: as in the paper's square, the one more is a negative frequency, and
    the real part is taken, which keeps half of it and half of its mirror image.
    """
    height, width = pixels.shape[-2:]
    spectrum = torch.fft.fft2(pixels)
    kept = _kept(height, share)[:, None] * _kept(width, share)
    filtered: Tensor = torch.fft.ifft2(spectrum * kept.to(pixels)).real
    return filtered.to(pixels.dtype)


def _kept(length: int, share: float) -> Tensor:
    """1 for the frequencies that are kept, in the order of the transform."""
    band = max(round(share * length), 1)
    frequency: Tensor = (torch.fft.fftfreq(length) * length).round()
    return ((frequency >= -(band // 2)) & (frequency < band - band // 2)).to(torch.float64)
