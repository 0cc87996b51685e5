"""Lossy compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Family
from surgeon.conditions.corruption import Frame, corruption

if TYPE_CHECKING:
    from surgeon.conditions.corruption import Bytes


@corruption("jpeg-compression", Family.DIGITAL, small=(80, 65, 58, 50, 40), large=(25, 18, 15, 10, 7))
def jpeg_compression(quality: int, frame: Frame) -> Bytes:
    """JPEG compression at low quality."""
    from io import BytesIO

    import numpy as np
    from PIL import Image

    stored = BytesIO()
    frame.picture().save(stored, "JPEG", quality=quality)
    with Image.open(stored) as picture:
        return np.asarray(picture).reshape(frame.pixels.shape)
