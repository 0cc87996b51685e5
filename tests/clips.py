"""Clips of sound made for tests."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Waveform = npt.NDArray[np.float64]


def tone(frequency: float, seconds: float = 0.2, rate: int = 16_000, loudness: float = 0.3) -> Waveform:
    """A sine."""
    return loudness * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


def encoded(waveform: Any, rate: int = 16_000, form: str = "WAV", subtype: str | None = None) -> bytes:
    """A file of it."""
    import soundfile

    stream = BytesIO()
    soundfile.write(stream, np.asarray(waveform), rate, subtype, format=form)
    return stream.getvalue()


def chirping(root: Path, counts: dict[str, int], seconds: float = 0.2, form: str = "WAV") -> Path:
    """Folders of splits with three classes that are heard apart: low and high tones, and hiss."""
    draws = np.random.default_rng(0)
    for split, count in counts.items():
        for label, name in enumerate(("low", "high", "hiss")):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                waveform = 0.01 * draws.standard_normal(round(16_000 * seconds))
                if name == "hiss":
                    waveform = 10 * waveform
                else:
                    waveform += tone((400, 2500)[label] * draws.uniform(0.8, 1.25), seconds)
                file = root / split / name / f"{number}.{form.lower()}"
                file.write_bytes(encoded(waveform, form=form))
    return root
