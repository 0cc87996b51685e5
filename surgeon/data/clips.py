"""Clips of sound: decoded one by one into waveforms, brought to the rate and length that a network takes.

A waveform travels as a picture of a single row in Pillow's mode F, with its rate among the picture's `info`: whatever
hands out, counts, augments and batches pictures does so with clips.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from math import ceil, gcd
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.core.media import Medium
from surgeon.core.versions import DISTRIBUTION
from surgeon.data.images import ImageSet
from surgeon.models.spectrogram import Spectrogram

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.origin import Preprocessing

MODE, RATE = "F", "rate"
SLOWEST, FASTEST = 1000, 768_000
"""Samples a second, of files that can be taken for sound."""
MOST_HEADERS = 2000
"""That are looked at before anything is computed."""
LONGEST_SECONDS, MOST_VALUES = 30, 1 << 24
"""Of a longer clip only the middle is decoded: a small file may hold days of silence."""
MARGIN = 16
"""Samples of the lower rate, beyond those that are wanted, which resampling needs at the ends."""

Waveform = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SoundSet(ImageSet):
    """A labelled set of clips."""

    medium: ClassVar[Medium] = Medium.SOUND

    def __post_init__(self) -> None:
        check_decoder()

    @staticmethod
    def _opened(content: bytes) -> Image.Image:
        return _decoded(content)

    def remarks(self, preprocessing: Preprocessing) -> tuple[str, ...]:
        """How many clips have another rate or length than the network takes, and what becomes of them."""
        wanted = preprocessing.sound
        if wanted is None:
            return ()
        looked_at = np.unique(np.linspace(0, len(self) - 1, min(MOST_HEADERS, len(self))).round().astype(int))
        headers = [header for index in looked_at if (header := header_of(self, int(index))) is not None]
        return tuple(_remarks(headers, wanted))


def _remarks(headers: Sequence[Header], wanted: Spectrogram) -> Iterator[str]:
    of = f"of {count(len(headers), 'clip')}"
    rates = [header.rate for header in headers if header.rate != wanted.rate]
    if rates:
        found = listing((f"{rate:,}" for rate in sorted(set(rates))), limit=4)
        yield f"{len(rates):,} {of} resampled to {wanted.rate:,} Hz, from {found} Hz."
    lengths = np.array([header.samples_at(wanted.rate) for header in headers])
    if shorter := int((lengths < wanted.samples).sum()):
        yield f"{shorter:,} {of} shorter than {wanted.seconds:g} s: padded with silence at both ends."
    if longer := int((lengths > wanted.samples).sum()):
        yield f"{longer:,} {of} longer than {wanted.seconds:g} s: only the middle is taken."


def check_decoder() -> None:
    """Sound needs a package that images do not."""
    if find_spec("soundfile") is None:
        raise SurgeonError("Clips of sound need soundfile.", f"Run: pip install '{DISTRIBUTION}[audio]'")


@dataclass(frozen=True)
class Header:
    """What a file says of itself."""

    rate: int
    frames: int

    @property
    def seconds(self) -> float:
        return self.frames / self.rate

    def samples_at(self, rate: int) -> int:
        """The length at another rate."""
        return ceil(self.frames * rate / self.rate)


def header_of(clips: ImageSet, index: int) -> Header | None:
    """The rate and length of a clip, without decoding it; None if it cannot be read."""
    import soundfile  # type: ignore[import-untyped]

    try:
        with soundfile.SoundFile(BytesIO(clips.encoded.read(int(clips.positions[index])))) as file:
            return Header(int(file.samplerate), int(file.frames))
    except (OSError, ValueError, soundfile.SoundFileError):
        return None


def _decoded(content: bytes) -> Image.Image:
    import soundfile

    try:
        with soundfile.SoundFile(BytesIO(content)) as file:
            return as_picture(_mono(file), file.samplerate)
    except soundfile.LibsndfileError as error:
        raise ValueError(str(error.error_string)) from error


def _mono(file: Any) -> Waveform:
    """The mean of all channels of the middle of a file."""
    if not SLOWEST <= file.samplerate <= FASTEST:
        raise ValueError(f"its sample rate of {file.samplerate:,} Hz is implausible")
    most = min(LONGEST_SECONDS * file.samplerate, MOST_VALUES // file.channels)
    if file.frames > most and file.seekable():
        file.seek((file.frames - most) // 2)
    values = file.read(most, dtype="float32", always_2d=True)
    if not len(values):
        raise ValueError("it holds no samples")
    if not np.isfinite(values).all():
        raise ValueError("it holds samples that are not numbers")
    return np.asarray(values.mean(axis=1), dtype=np.float32)


def as_picture(waveform: Waveform, rate: int) -> Image.Image:
    """A waveform as a picture of one row."""
    picture = Image.fromarray(np.ascontiguousarray(waveform, dtype=np.float32)[None])
    picture.info[RATE] = int(rate)
    return picture


def taken_from(picture: Image.Image, wanted: Spectrogram, share: float = 0.5, shift: int = 0) -> Waveform:
    """As much of a clip as a network takes, at its rate; silence where there is none.

    Args:
        picture: The clip.
        wanted: Rate and length.
        share: Where to take it from a longer clip, or to put a shorter one: 0 at the beginning, 1 at the end.
        shift: By how many samples to begin later than that.
    """
    waveform, rate = np.asarray(picture)[0], int(picture.info[RATE])
    length = ceil(len(waveform) * wanted.rate / rate)
    start = round(share * (length - wanted.samples)) + shift
    if rate != wanted.rate:
        waveform, before = _resampled(waveform, rate, wanted, start)
        start -= before
    found = np.zeros(wanted.samples, dtype=np.float32)
    first, last = max(start, 0), min(start + wanted.samples, len(waveform))
    if first < last:
        found[first - start : last - start] = waveform[first:last]
    return found


def _resampled(waveform: Waveform, rate: int, wanted: Spectrogram, start: int) -> tuple[Waveform, int]:
    """The part of a waveform around what is wanted, at another rate, and how many samples lie before it."""
    from scipy.signal import resample_poly  # type: ignore[import-untyped]

    divisor = gcd(rate, wanted.rate)
    up, down = wanted.rate // divisor, rate // divisor
    # In whole periods of both rates, so that the part falls on the samples of the whole.
    margin = MARGIN * ceil(max(1, wanted.rate / rate))
    first = max(0, (start - margin) // up)
    last = max(first + 1, ceil((start + wanted.samples + margin) / up))
    part = waveform[first * down : last * down]
    if not len(part):
        return np.zeros(0, dtype=np.float32), first * up
    return resample_poly(part, up, down).astype(np.float32), first * up


class ClipTransform:
    """The middle of each clip, at the rate and length that a network takes."""

    def __init__(self, wanted: Spectrogram) -> None:
        self.wanted = wanted

    def picture(self, clip: Image.Image) -> Image.Image:
        """The waveform of one clip, still a picture."""
        return as_picture(taken_from(clip, self.wanted), self.wanted.rate)

    def __call__(self, clip: Image.Image) -> Tensor:
        """The waveform of one clip (1, 1, samples)."""
        import torch

        return torch.from_numpy(taken_from(clip, self.wanted))[None, None]
