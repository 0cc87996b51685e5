"""A camera that moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption(
    "motion-blur",
    Family.BLUR,
    small=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    large=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
)
def motion_blur(parameters: tuple[int, float], frame: Frame) -> Floats:
    """Blur in one direction, up to 45 degrees from the horizontal (parameters: radius, sigma)."""
    from surgeon.conditions.kernels import filtering

    radius, sigma = frame.length(parameters[0]), frame.scale * parameters[1]
    return filtering.motion_blur(frame.floats(), radius, sigma, frame.generator.uniform(-45, 45))
