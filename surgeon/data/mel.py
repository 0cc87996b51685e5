"""Log-mel spectrograms, computed by torch on whichever device the clips are.

M. Slaney, Auditory Toolbox, 1998 (the mel scale and filters); librosa computes the same by default.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from surgeon.models.spectrogram import Spectrogram

LINEAR_STEP = 200 / 3
"""Hertz per mel below a thousand."""
KNEE = 1000.0
LOG_STEP = np.log(6.4) / 27
"""Of the natural logarithm of the frequency, per mel above a thousand hertz."""


def log_mel(waveforms: Tensor, spectrogram: Spectrogram) -> Tensor:
    """Spectrograms (N, bands, frames) of waveforms (N, samples)."""
    window, filters = _constants(spectrogram, waveforms.device)
    spectra = torch.stft(
        waveforms,
        spectrogram.window,
        spectrogram.hop,
        window=window,
        center=True,
        pad_mode="constant",
        return_complex=True,
    )
    power = torch.view_as_real(spectra).square().sum(-1)
    return torch.matmul(filters, power).add_(spectrogram.floor).log_()


def resized(images: Tensor, size: tuple[int, ...]) -> Tensor:
    """Spectrograms (N, 1, bands, frames) in another size, for a network that was built for one."""
    if tuple(images.shape[-2:]) == size:
        return images
    return F.interpolate(images, size=size, mode="bilinear", antialias=True)


def mel_filters(spectrogram: Spectrogram) -> npt.NDArray[np.float64]:
    """Triangular filters (bands, frequencies) of equal area."""
    highest = spectrogram.rate / 2
    edges = _hertz(np.linspace(0.0, mel_of(highest), spectrogram.bands + 2))
    frequencies = np.arange(1 + spectrogram.window // 2) * spectrogram.rate / spectrogram.window
    lower, middle, upper = (edges[start : start + spectrogram.bands, None] for start in range(3))
    rising = (frequencies - lower) / (middle - lower)
    falling = (upper - frequencies) / (upper - middle)
    return np.maximum(0.0, np.minimum(rising, falling)) * 2 / (upper - lower)


def mel_of(hertz: float) -> float:
    """A frequency on Slaney's mel scale."""
    return hertz / LINEAR_STEP if hertz < KNEE else KNEE / LINEAR_STEP + float(np.log(hertz / KNEE) / LOG_STEP)


def _hertz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    knee = KNEE / LINEAR_STEP
    return np.where(mel < knee, mel * LINEAR_STEP, KNEE * np.exp(LOG_STEP * (np.maximum(mel, knee) - knee)))


@lru_cache(maxsize=8)
def _constants(spectrogram: Spectrogram, device: torch.device) -> tuple[Tensor, Tensor]:
    """The window and the filters, made once."""
    filters = torch.from_numpy(mel_filters(spectrogram)).float()
    return torch.hann_window(spectrogram.window, device=device), filters.to(device)
