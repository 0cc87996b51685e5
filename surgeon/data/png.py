"""Files of the simplest kind, PNG with 8 bits and nothing but pixels, decoded without opening each as a picture.

With small images, opening, resizing and cropping take longer than decompressing, and each step may hand Python's lock
over to another thread: where it was compiled, one function decodes a whole batch.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from surgeon.core import compiled

_BEGINNING = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_EIGHT_BITS, _AS_USUAL = b"\x08", b"\x00\x00\x00"  # compression, filtering and order of the lines
_COLOURS = {1: b"\x00", 3: b"\x02"}
_MODES = {1: "L", 3: "RGB"}
_HEADER, _PIXELS, _CHECKSUM = len(_BEGINNING), len(_BEGINNING) + 13 + 4, 4
_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"


class PlainPngs:
    """Decodes grey or colour images of one size (C, H, W) to bytes."""

    def __init__(self, size: tuple[int, int, int]) -> None:
        channels, height, width = size
        self._shape = height, width, channels
        sides = width.to_bytes(4, "big") + height.to_bytes(4, "big")
        header = _BEGINNING + sides + _EIGHT_BITS + _COLOURS[channels] + _AS_USUAL
        self._start = header + _checksum(header[_HEADER - 4 :])

    def compressed(self, content: bytes) -> bytes | None:
        """The pixels of a file as they lie in it; None if it is of another kind or size, or has other chunks too.

        Those may ask for transparency or another gamma.
        """
        kind = _PIXELS + 4
        end = kind + 4 + int.from_bytes(content[_PIXELS:kind], "big")
        if not content.startswith(self._start) or content[kind : kind + 4] != b"IDAT":
            return None
        if content[end : end + _CHECKSUM] != _checksum(content[kind:end]) or content[end + _CHECKSUM :] != _END:
            return None
        return content[kind + 4 : end]

    def pixels(self, compressed: Sequence[bytes], threads: int = 1) -> Tensor | None:
        """The pixels of several files, (N, H, W, C); None if one is damaged, or has not as many as its header says."""
        height, width, channels = self._shape
        pixels = torch.empty((len(compressed), *self._shape), dtype=torch.uint8)
        if (kernel := _kernel()) is not None:
            decode, uncompress = kernel
            failed = decode(
                uncompress, (ctypes.c_char_p * len(pixels))(*compressed),
                (ctypes.c_ulong * len(pixels))(*map(len, compressed)), pixels.data_ptr(),
                len(pixels), height, width * channels, channels, threads,
            )  # fmt: skip
            return None if failed else pixels
        mode = _MODES[channels]
        try:
            for image, one in zip(pixels.numpy(), compressed, strict=True):
                picture = Image.frombytes(mode, (width, height), one, "zip", mode)
                image[:] = np.asarray(picture).reshape(self._shape)
        except ValueError:
            return None
        return pixels


@cache
def _kernel() -> tuple[Callable[..., int], Any] | None:
    """What decodes many files at once, if it was compiled (png.c), and the `uncompress` of the zlib that Python has."""
    library = compiled.library()
    try:
        decode, uncompress = library.png_decode, ctypes.CDLL(zlib.__file__).uncompress  # type: ignore[union-attr]
    except (AttributeError, OSError):  # no library or an older one; a Python that has zlib built in
        return None
    size = ctypes.c_ssize_t
    decode.argtypes = [*[ctypes.c_void_p] * 4, *[size] * 4, ctypes.c_int]
    decode.restype = ctypes.c_int
    return decode, uncompress


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECKSUM, "big")
