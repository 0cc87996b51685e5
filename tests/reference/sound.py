"""Log-mel spectrograms and signal-to-noise ratios, written out from their definitions in float64, frame by frame."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def mel(hertz: float) -> float:
    """Slaney's scale: three mels per 200 Hz up to 1000 Hz, then 27 mels for each factor of 6.4."""
    return 3 * hertz / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000) / math.log(6.4)


def hertz(mels: float) -> float:
    return 200 * mels / 3 if mels < 15 else 1000 * 6.4 ** ((mels - 15) / 27)


def filters(rate: int, size: int, bands: int) -> Floats:
    """Triangles of area 1 between neighbouring points that are equally far apart in mels."""
    points = [hertz(mel(rate / 2) * number / (bands + 1)) for number in range(bands + 2)]
    found = np.zeros((bands, size // 2 + 1))
    for band in range(bands):
        low, middle, high = points[band : band + 3]
        for place in range(size // 2 + 1):
            f = place * rate / size
            height = (f - low) / (middle - low) if f <= middle else (high - f) / (high - middle)
            found[band, place] = max(0.0, height) * 2 / (high - low)
    return found


def log_mel(waveform: Floats, rate: int, bands: int, window: int, hop: int, floor: float) -> Floats:
    """(bands, frames) of one clip: silence at both ends, a periodic Hann window, power, mel bands, logarithm."""
    padded = np.concatenate([np.zeros(window // 2), waveform, np.zeros(window // 2)])
    hann = np.array([0.5 - 0.5 * math.cos(2 * math.pi * n / window) for n in range(window)])
    frames = 1 + len(waveform) // hop
    transform = np.exp(-2j * np.pi * np.outer(np.arange(window // 2 + 1), np.arange(window)) / window)
    weights = filters(rate, window, bands)
    columns = []
    for frame in range(frames):
        spectrum = transform @ (padded[frame * hop : frame * hop + window] * hann)
        columns.append(np.log(weights @ (np.abs(spectrum) ** 2) + floor))
    return np.stack(columns, axis=1)


def decibels(signal: Floats, noise: Floats) -> float:
    """The ratio of the mean powers of two waveforms."""
    return float(10 * np.log10(np.mean(signal**2) / np.mean(noise**2)))
