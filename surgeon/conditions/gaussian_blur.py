"""A Gaussian blur."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption("gaussian-blur", Family.EXTRA, small=(0.4, 0.6, 0.7, 0.8, 1), large=(1, 2, 3, 4, 6))
def gaussian_blur(sigma: float, frame: Frame) -> Floats:
    """Every point becomes a Gaussian (parameter: standard deviation in pixels)."""
    from surgeon.conditions.kernels import filtering

    return filtering.gaussian_blur(frame.floats(), frame.scale * sigma)
