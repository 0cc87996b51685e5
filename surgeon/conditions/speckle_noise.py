"""Speckle: noise in proportion to the brightness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption("speckle-noise", Family.EXTRA, small=(0.06, 0.1, 0.12, 0.16, 0.2), large=(0.15, 0.2, 0.35, 0.45, 0.6))
def speckle_noise(sigma: float, frame: Frame) -> Floats:
    """Gaussian noise in proportion to each pixel's brightness."""
    from surgeon.conditions.kernels.drawing import normals

    noise = normals(frame.generator, frame.pixels.shape, sigma)
    noise += 1
    noise *= frame.pixels
    return noise
