"""Colours that are too pale or too strong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption
from surgeon.core.errors import SurgeonError

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption(
    "saturate",
    Family.EXTRA,
    small=((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    large=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
)
def saturate(parameters: tuple[float, float], frame: Frame) -> Floats:
    """Paler (severities 1 and 2) or stronger colours: saturation in HSV times a factor, plus a constant."""
    from surgeon.conditions.kernels import colours

    if frame.pixels.shape[-1] == 1:
        raise SurgeonError("saturate changes colours, and these images are grey.", "Leave it out.")
    return colours.saturate(frame.pixels, *parameters)
