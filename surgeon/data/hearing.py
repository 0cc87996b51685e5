"""What a network that learns from clips is to take: rate, length and loudness, from the training clips alone."""

from __future__ import annotations

import numpy as np

from surgeon.core.errors import SurgeonError
from surgeon.data.clips import header_of
from surgeon.data.images import ImageSet
from surgeon.data.loaders import batches
from surgeon.models.origin import Preprocessing
from surgeon.models.spectrogram import RATE, Spectrogram

MOST_CLIPS = 1000
"""That are looked at, evenly spread over the set."""
LONGEST = 10.0
"""Seconds that a network is given at once, unless its own preprocessing says otherwise."""
AT_ONCE = 32
DIGITS = 4
"""Of mean and standard deviation, so that they are the same on every machine."""
LEAST_SPREAD = 1e-3


def preprocessing_for(clips: ImageSet) -> Preprocessing:
    """Clips of the median length at 16 kHz as 40 mel bands, normalised by their mean and standard deviation.

    Args:
        clips: Those to train on. No others may be looked at.
    """
    some = clips.subset(np.unique(np.linspace(0, len(clips) - 1, min(MOST_CLIPS, len(clips))).round().astype(int)))
    headers = [header for index in range(len(some)) if (header := header_of(some, index)) is not None]
    if not headers:
        raise SurgeonError(f"None of the clips of {clips.name!r} can be read.")
    seconds = float(np.median([header.seconds for header in headers]))
    samples = max(1, round(min(seconds, LONGEST) * RATE))
    sound = Spectrogram(samples=samples)
    plain = Preprocessing(input_size=(1, sound.bands, sound.frames), mean=(0.0,), std=(1.0,), sound=sound)
    total, squares, number = 0.0, 0.0, 0
    for batch in batches(some, plain, AT_ONCE, skip_bad=True):
        values = batch.images.double()
        total, squares = total + float(values.sum()), squares + float(values.square().sum())
        number += values.numel()
    mean = total / number
    deviation = max(squares / number - mean**2, 0.0) ** 0.5
    if deviation < LEAST_SPREAD:
        raise SurgeonError(f"The training clips of {clips.name!r} are all silent.", "Check the files.")
    return plain.model_copy(update={"mean": (round(mean, DIGITS),), "std": (round(deviation, DIGITS),)})
