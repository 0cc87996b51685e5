"""A low resolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Bytes


@corruption("pixelate", Family.DIGITAL, small=(0.95, 0.9, 0.85, 0.75, 0.65), large=(0.6, 0.5, 0.4, 0.3, 0.25), needs=4)
def pixelate(share: float, frame: Frame) -> Bytes:
    """Image shrunk and enlarged again (parameter: share of each side that is left)."""
    import numpy as np
    from PIL import Image

    picture = frame.picture()
    width, height = picture.size
    coarse = picture.resize((int(width * share), int(height * share)), Image.Resampling.BOX)
    return np.asarray(coarse.resize((width, height), Image.Resampling.BOX)).reshape(frame.pixels.shape)
