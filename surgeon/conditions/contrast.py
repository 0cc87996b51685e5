"""Low contrast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption("contrast", Family.DIGITAL, small=(0.75, 0.5, 0.4, 0.3, 0.15), large=(0.4, 0.3, 0.2, 0.1, 0.05))
def contrast(factor: float, frame: Frame) -> Floats:
    """Every pixel is moved towards the mean of its channel."""
    pixels = frame.floats()
    means = frame.pixels.mean(axis=(0, 1)).astype("float32")
    pixels -= means
    pixels *= factor
    pixels += means
    return pixels
