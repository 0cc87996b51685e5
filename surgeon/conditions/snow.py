"""Snow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption(
    "snow",
    Family.WEATHER,
    small=(
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    large=(
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    needs=4,
)
def snow(parameters: tuple[float, float, float, float, int, float, float], frame: Frame) -> Floats:
    """Falling flakes (noise: mean, deviation, size, threshold; trail: radius, sigma; share of the own colour)."""
    import numpy as np

    from surgeon.conditions.kernels.colours import grey_of
    from surgeon.conditions.kernels.drawing import normals
    from surgeon.conditions.kernels.filtering import motion_blur
    from surgeon.conditions.kernels.resampling import cut_side, enlarge

    mean, deviation, size, threshold, radius, sigma, colour = parameters
    size *= frame.scale if size * frame.scale > 1 else 1
    height, width = frame.pixels.shape[:2]
    layer = normals(frame.generator, (cut_side(height, size), cut_side(width, size)), deviation) + np.float32(mean)
    if size > 1:
        layer = enlarge(layer, size, (height, width))
    layer[layer < threshold] = 0
    layer = layer.clip(0, 1) * 255
    if frame.small:
        layer = np.floor(layer)
    angle = frame.generator.uniform(-135, -45)
    flakes = motion_blur(layer[..., None], frame.length(radius), frame.scale * sigma, angle).round()
    pixels = frame.floats()
    whitened = np.maximum(pixels, grey_of(pixels) * 1.5 + 127.5)
    pixels *= colour
    pixels += (1 - colour) * whitened
    pixels += flakes + flakes[::-1, ::-1]
    return pixels
