"""Frost on a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption(
    "frost",
    Family.WEATHER,
    small=((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    large=((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
)
def frost(parameters: tuple[float, float], frame: Frame) -> Floats:
    """Ice crystals over the image (parameters: weights of both); not the published pictures of frost."""
    from surgeon.conditions.kernels.colours import grey_of
    from surgeon.conditions.kernels.ice import crystals

    own, other = parameters
    pixels = frame.floats()
    ice = crystals(frame.generator, pixels.shape[0], pixels.shape[1], frame.scale, frame.small)
    return own * pixels + other * (ice if pixels.shape[-1] == 3 else grey_of(ice))
