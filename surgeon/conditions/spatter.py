"""Rain and mud on the lens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption(
    "spatter",
    Family.EXTRA,
    small=(
        (0.62, 0.1, 0.7, 0.7, 0.5, False),
        (0.65, 0.1, 0.8, 0.7, 0.5, False),
        (0.65, 0.3, 1, 0.69, 0.5, False),
        (0.65, 0.1, 0.7, 0.69, 0.6, True),
        (0.65, 0.1, 0.5, 0.68, 0.6, True),
    ),
    large=(
        (0.65, 0.3, 4, 0.69, 0.6, False),
        (0.65, 0.3, 3, 0.68, 0.6, False),
        (0.65, 0.3, 2, 0.68, 0.5, False),
        (0.65, 0.3, 1, 0.65, 1.5, True),
        (0.67, 0.4, 1, 0.65, 1.5, True),
    ),
    needs=8,
)
def spatter(parameters: tuple[float, float, float, float, float, bool], frame: Frame) -> Floats:
    """Drops of water, or mud from severity 4 (noise: mean, deviation, size, threshold; strength or softness)."""
    from surgeon.conditions.kernels import liquid
    from surgeon.conditions.kernels.colours import grey_of

    mean, deviation, size, threshold, last, muddy = parameters
    pixels = frame.floats()
    layer = liquid.layer(frame.generator, pixels.shape[:2], mean, deviation, frame.scale * size)
    if muddy:
        cover = liquid.mud(layer, threshold, frame.scale * last)
        return pixels * (1 - cover) + cover * (liquid.MUD if pixels.shape[-1] == 3 else grey_of(liquid.MUD))
    drops = liquid.water(layer, threshold, last)
    return pixels + drops * (liquid.WATER if pixels.shape[-1] == 3 else grey_of(liquid.WATER))
