"""Gaussian noise, as in dim light."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frames, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption("gaussian-noise", Family.NOISE, small=(0.04, 0.06, 0.08, 0.09, 0.10), large=(0.08, 0.12, 0.18, 0.26, 0.38))
def gaussian_noise(sigma: float, frames: Frames) -> Floats:
    """Independent Gaussian noise on every pixel and channel."""
    import numpy as np

    noise = np.empty(frames.pixels.shape, dtype=np.float32)
    for image, generator in zip(noise, frames.generators(), strict=True):
        generator.standard_normal(dtype=np.float32, out=image)
    noise *= 255 * sigma
    noise += frames.pixels
    return noise
