"""Fog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption(
    "fog",
    Family.WEATHER,
    small=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    large=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    needs=2,
)
def fog(parameters: tuple[float, float], frame: Frame) -> Floats:
    """A plasma fractal is added and the brightness rescaled (parameters: strength, decay of the fractal)."""
    from surgeon.conditions.kernels.plasma import plasma

    strength, decay = parameters
    brightest = frame.pixels.max() / 255
    fractal = plasma(frame.generator, frame.pixels.shape[0], frame.pixels.shape[1], decay)
    pixels = frame.floats()
    pixels += fractal[..., None] * (255 * strength)
    pixels *= brightest / (brightest + strength)
    return pixels
