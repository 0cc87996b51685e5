"""A lens out of focus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption(
    "defocus-blur",
    Family.BLUR,
    small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    large=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
)
def defocus_blur(parameters: tuple[float, float], frame: Frame) -> Floats:
    """Every point becomes a disc (parameters: radius in pixels, softness of the edge)."""
    from surgeon.conditions.kernels.filtering import apply_filter, disc

    radius, alias_blur = parameters
    return apply_filter(frame.floats(), *disc(frame.scale * radius, alias_blur), "mirror")
