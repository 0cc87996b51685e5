"""Bright light."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption("brightness", Family.WEATHER, small=(0.05, 0.1, 0.15, 0.2, 0.3), large=(0.1, 0.2, 0.3, 0.4, 0.5))
def brightness(added: float, frame: Frame) -> Floats:
    """Brighter: a constant is added to the value in HSV."""
    from surgeon.conditions.kernels.colours import brighten

    return brighten(frame.pixels, added)
