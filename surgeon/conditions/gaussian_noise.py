"""Gaussian noise, as in dim light."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption("gaussian-noise", Family.NOISE, small=(0.04, 0.06, 0.08, 0.09, 0.10), large=(0.08, 0.12, 0.18, 0.26, 0.38))
def gaussian_noise(sigma: float, frame: Frame) -> Floats:
    """Independent Gaussian noise on every pixel and channel."""
    from surgeon.conditions.kernels.drawing import normals

    noise = normals(frame.generator, frame.pixels.shape, 255 * sigma)
    noise += frame.pixels
    return noise
