"""How a network hears: the mel spectrogram that it takes in the place of a picture."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

RATE, BANDS, WINDOW, HOP = 16_000, 40, 0.025, 0.010
"""Samples a second, mel bands, and in seconds the usual window of speech recognition and its step."""
FLOOR = 1e-8
"""Added to the power in each band, so that silence has a logarithm: the power of white noise at -86 dB."""
MOST_SAMPLES, MOST_VALUES = 1 << 22, 1 << 23
"""Of a clip, and of its spectrum: a record that somebody made up must not fill the memory."""


class Spectrogram(BaseModel):
    """Log-mel spectrogram of clips of one rate and length.

    The clip is padded by half a window of silence at both ends, so that frames are centred at multiples of the hop.
    Each is weighted by a Hann window; the power spectrum is summed into triangular bands on Slaney's mel scale, each
    divided by its width, from 0 Hz to half the rate; and `log(power + floor)` is taken. These are librosa's defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rate: Annotated[int, Field(ge=1000, le=192_000)] = RATE
    """Samples a second."""
    samples: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = RATE
    """Of a clip."""
    bands: Annotated[int, Field(ge=1, le=1024)] = BANDS
    window: Annotated[int, Field(ge=2, le=1 << 16)] = round(WINDOW * RATE)
    """In samples, and the length of the Fourier transform."""
    hop: Annotated[int, Field(ge=1, le=1 << 16)] = round(HOP * RATE)
    """From one window to the next, in samples."""
    floor: Annotated[float, Field(gt=0)] = FLOOR

    @model_validator(mode="after")
    def _of_a_usual_size(self) -> Self:
        if self.frames * max(self.bands, 1 + self.window // 2) > MOST_VALUES:
            raise ValueError(f"the spectrum of a clip has more than {MOST_VALUES:,} values")
        return self

    @property
    def frames(self) -> int:
        """How many windows a clip has."""
        return 1 + self.samples // self.hop

    @property
    def seconds(self) -> float:
        """The length of a clip."""
        return self.samples / self.rate

    @property
    def text(self) -> str:
        """What it is made of, in words."""
        window, hop = (f"{1000 * samples / self.rate:g} ms" for samples in (self.window, self.hop))
        return (
            f"clips of {self.seconds:g} s at {self.rate:,} Hz, {self.bands} mel bands x {self.frames} frames "
            f"(window {window}, hop {hop}), log(power + {self.floor:g})"
        )
