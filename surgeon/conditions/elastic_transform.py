"""Images that are bent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Floats


@corruption(
    "elastic-transform",
    Family.DIGITAL,
    small=((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    large=((12.5, 0.01, 0), (16.25, 0.01, 0), (21.25, 0.01, 0), (25, 0.01, 0), (30, 0.01, 0)),
    needs=4,
    moves=True,
)
def elastic_transform(parameters: tuple[float, float, float], frame: Frame) -> Floats:
    """Smooth displacement of pixels (parameters: strength, smoothness, strength of an affine map)."""
    from surgeon.conditions.kernels.bending import displaced, slanted

    far, smooth, affine = parameters
    height, width = frame.pixels.shape[:2]
    pixels = frame.floats()
    if affine:
        pixels = slanted(frame.generator, pixels, affine * frame.side)
    if frame.small:
        return displaced(frame.generator, pixels, far * frame.side, (smooth * frame.side,) * 2) if far else pixels
    # At 224 px these are the values of imagecorruptions, whose displacements do not grow with the image.
    return displaced(frame.generator, pixels, far * frame.scale * 0.005 * height, (smooth * height, smooth * width))
