"""Arrays and large integers as bytes: numpy's own format, compressed, and without pickle."""

from __future__ import annotations

import io
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surgeon.core.errors import SurgeonError


def pack(*arrays: NDArray[Any]) -> bytes:
    """The arrays one after another in the .npy format, compressed; equal arrays give equal bytes."""
    buffer = io.BytesIO()
    for array in arrays:
        np.lib.format.write_array(buffer, array, allow_pickle=False)
    return zlib.compress(buffer.getvalue())


def unpack(data: bytes) -> list[NDArray[Any]]:
    """The arrays that were packed. The checksum of zlib finds bytes that were changed or cut off."""
    inflate = zlib.decompressobj()
    try:
        buffer = io.BytesIO(inflate.decompress(data))
        arrays = []
        while buffer.tell() < len(buffer.getbuffer()):
            arrays.append(np.lib.format.read_array(buffer, allow_pickle=False))
    except (zlib.error, ValueError) as error:
        raise damaged() from error
    if not inflate.eof or inflate.unused_data:
        raise damaged()
    return arrays


def damaged() -> SurgeonError:
    return SurgeonError(
        "Stored scores are damaged or of another version of surgeon.",
        "Delete them and score the images again.",
    )


def digits(integers: NDArray[Any]) -> NDArray[np.uint8]:
    """Python integers >= 0 of any size in base 256, as few digits as the largest needs, lowest first.

    The digits are the first axis: equal digits side by side, such as leading zeros, compress well.
    """
    flat = integers.ravel().tolist()
    width = max((number.bit_length() + 7) // 8 for number in [1, *flat])
    joined = np.frombuffer(b"".join(number.to_bytes(width, "little") for number in flat), np.uint8)
    return np.ascontiguousarray(joined.reshape(*integers.shape, width).transpose(-1, *range(integers.ndim)))


def integers(digits: NDArray[np.uint8]) -> NDArray[Any]:
    """The Python integers of their digits."""
    rows = np.moveaxis(digits, 0, -1).reshape(-1, len(digits))
    found = np.array([int.from_bytes(row.tobytes(), "little") for row in rows], dtype=object)
    return found.reshape(digits.shape[1:])
