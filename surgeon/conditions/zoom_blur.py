"""A camera that zooms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption(
    "zoom-blur",
    Family.BLUR,
    small=((0.01, 7), (0.01, 12), (0.01, 16), (0.01, 21), (0.01, 26)),
    large=((0.01, 12), (0.01, 16), (0.02, 11), (0.02, 13), (0.03, 11)),
    needs=4,
)
def zoom_blur(parameters: tuple[float, int], frame: Frame) -> Floats:
    """Mean of the image and its enlargements (parameters: step of the zoom factor, number of steps)."""
    from surgeon.conditions.kernels.resampling import sum_of_zooms

    step, count = parameters
    exact = (1 + step) - 1  # as numpy.arange counts, by which the sizes of enlargements are rounded
    pixels = frame.floats()
    zooms = sum_of_zooms(pixels, tuple(1 + exact * number for number in range(count)), centred=frame.small)
    zooms += pixels
    zooms /= count + 1
    return zooms
