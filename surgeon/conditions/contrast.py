"""Low contrast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frames, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption("contrast", Family.DIGITAL, small=(0.75, 0.5, 0.4, 0.3, 0.15), large=(0.4, 0.3, 0.2, 0.1, 0.05))
def contrast(factor: float, frames: Frames) -> Floats:
    """Every pixel closer to the mean of its channel in the image."""
    import numpy as np

    pixels = frames.pixels.astype(np.float32)
    means = frames.pixels.mean(axis=(1, 2), keepdims=True, dtype=np.float64).astype(np.float32)
    pixels -= means
    pixels *= factor
    pixels += means
    return pixels
