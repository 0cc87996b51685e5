"""Shot noise: light comes in photons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Bytes


@corruption("shot-noise", Family.NOISE, small=(500, 250, 100, 75, 50), large=(60, 25, 12, 5, 3))
def shot_noise(photons: float, frame: Frame) -> Bytes:
    """Poisson noise (parameter: photons that a white pixel receives)."""
    from surgeon.conditions.kernels.drawing import poisson

    return poisson(frame.generator, frame.pixels, photons)
