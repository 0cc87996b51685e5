"""Files of the simplest kind, PNG with 8 bits and nothing but pixels, decoded without opening each as a picture.

With small images, opening, resizing and cropping take longer than decompressing, and each step may hand Python's lock
over to another thread. Pillow's decoder does the work here too.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch
from PIL import Image
from torch import Tensor

_BEGINNING = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_EIGHT_BITS, _AS_USUAL = b"\x08", b"\x00\x00\x00"  # compression, filtering and order of the lines
_COLOURS = {"L": b"\x00", "RGB": b"\x02"}
_HEADER, _PIXELS, _CHECKSUM = len(_BEGINNING), len(_BEGINNING) + 13 + 4, 4
_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"


class PlainPngs:
    """Decodes grey or colour images of one size (C, H, W) to bytes."""

    def __init__(self, size: tuple[int, int, int]) -> None:
        channels, height, width = size
        self._mode, self._size = "L" if channels == 1 else "RGB", (width, height)
        sides = width.to_bytes(4, "big") + height.to_bytes(4, "big")
        header = _BEGINNING + sides + _EIGHT_BITS + _COLOURS[self._mode] + _AS_USUAL
        self._start = header + _checksum(header[_HEADER - 4 :])

    def __call__(self, content: bytes) -> Tensor | None:
        """The pixels of a file; None if it is of another kind or size, or damaged."""
        if (compressed := self._only_chunk(content)) is None:
            return None
        try:
            image = Image.frombytes(self._mode, self._size, compressed, "zip", self._mode)
        except ValueError:
            return None
        pixels = torch.from_numpy(np.array(image))
        return (pixels if pixels.dim() == 3 else pixels[:, :, None]).permute(2, 0, 1)

    def _only_chunk(self, content: bytes) -> bytes | None:
        """The pixels, if the file has nothing else: other chunks may ask for transparency or another gamma."""
        kind = _PIXELS + 4
        end = kind + 4 + int.from_bytes(content[_PIXELS:kind], "big")
        if not content.startswith(self._start) or content[kind : kind + 4] != b"IDAT":
            return None
        if content[end : end + _CHECKSUM] != _checksum(content[kind:end]) or content[end + _CHECKSUM :] != _END:
            return None
        return content[kind + 4 : end]


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECKSUM, "big")
