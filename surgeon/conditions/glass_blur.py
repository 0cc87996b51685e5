"""Frosted glass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption(
    "glass-blur",
    Family.BLUR,
    small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    large=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    needs=4,
)
def glass_blur(parameters: tuple[float, int, int], frame: Frame) -> Floats:
    """Pixels swapped with neighbours (parameters: sigma of the blur, farthest neighbour, rounds)."""
    import numpy as np

    from surgeon.conditions.kernels.filtering import gaussian_blur
    from surgeon.conditions.kernels.shuffling import shuffle

    sigma, delta, rounds = parameters[0] * frame.scale, frame.length(parameters[1]), parameters[2]
    blurred = gaussian_blur(frame.floats(), sigma).astype(np.uint8)
    shuffled = shuffle(frame.generator, blurred, delta, rounds)
    return gaussian_blur(shuffled.astype(np.float32), sigma)
