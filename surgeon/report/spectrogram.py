"""Spectrograms as pictures: colours for loudness, low frequencies at the bottom, and axes in seconds and kilohertz."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from surgeon.data.mel import mel_of
from surgeon.models.spectrogram import Spectrogram
from surgeon.report.gallery import Scale, Scales

COLOURS = "magma"
QUIETEST, LOUDEST = -2.0, 2.5
"""Of normalised spectrograms, in standard deviations: the same colours mean the same in all of them."""
KILOHERTZ = (0.5, 1, 2, 4, 8, 16, 32, 64)


def coloured(normalised: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """One normalised spectrogram (bands, frames) as bytes (bands, frames, 3)."""
    from matplotlib import colormaps

    levels = (normalised[::-1] - QUIETEST) / (LOUDEST - QUIETEST)
    return np.asarray(colormaps[COLOURS](np.clip(levels, 0, 1), bytes=True)[..., :3], dtype=np.uint8)


def axes_of(sound: Spectrogram) -> Scales:
    """Where seconds and kilohertz are in a picture of one."""
    highest = mel_of(sound.rate / 2)
    across = tuple((share, f"{share * sound.seconds:.3g}") for share in (0.0, 0.5, 1.0))
    shares = {hertz: mel_of(1000 * hertz) / highest for hertz in KILOHERTZ if 2000 * hertz <= sound.rate}
    upwards = tuple((share, f"{hertz:g}") for hertz, share in shares.items())
    return Scales(Scale("s", across), Scale("kHz", upwards))
