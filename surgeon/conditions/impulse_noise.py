"""Impulse noise: bits that flip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Bytes


@corruption("impulse-noise", Family.NOISE, small=(0.01, 0.02, 0.03, 0.05, 0.07), large=(0.03, 0.06, 0.09, 0.17, 0.27))
def impulse_noise(share: float, frame: Frame) -> Bytes:
    """Salt-and-pepper noise: a share of all values becomes black or white."""
    import numpy as np

    uniform = frame.generator.random(frame.pixels.shape, dtype=np.float32)
    found = frame.pixels.copy()
    found[uniform < share] = 255
    found[uniform < share / 2] = 0
    return found
