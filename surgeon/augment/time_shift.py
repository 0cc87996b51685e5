"""Clips that begin a little earlier or later.

The usual augmentation of speech commands: T. Sainath and C. Parada, Convolutional Neural Networks for Small-footprint
Keyword Spotting, Interspeech 2015.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.base import AugmentConfig, ImageOperation, Kind, option, register
from surgeon.core.media import Medium

if TYPE_CHECKING:
    from PIL import Image

    from surgeon.models.origin import Preprocessing


class TimeShiftConfig(AugmentConfig):
    most: float = option(0.1, "Largest shift, as a share of the network's input length.", ge=0, le=1)


@register(
    "time-shift",
    kind=Kind.GEOMETRY,
    paper="Sainath and Parada, Interspeech 2015",
    config=TimeShiftConfig,
    on=(Medium.SOUND,),
)
def time_shift(config: TimeShiftConfig, preprocessing: Preprocessing) -> ImageOperation:
    """Each clip is shifted in time and padded with silence; from a longer clip, a random part is taken."""
    import random

    from surgeon.data.clips import as_picture, taken_from

    wanted = preprocessing.sound
    assert wanted is not None
    farthest = round(config.most * wanted.samples)

    def shift(clip: Image.Image) -> Image.Image:
        share, by = random.random(), random.randint(-farthest, farthest)
        return as_picture(taken_from(clip, wanted, share, by), wanted.rate)

    return shift
