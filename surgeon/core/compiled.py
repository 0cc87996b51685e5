"""The compiled kernels: one library for all rooms, each of which declares the functions that are its own."""

from __future__ import annotations

import ctypes
from functools import cache

from surgeon.core.versions import kernels_file


@cache
def library() -> ctypes.CDLL | None:
    """The library; None if it was not built, or for another OpenMP runtime than torch's, which is imported already."""
    file = kernels_file()
    if file is None:
        return None
    try:
        return ctypes.CDLL(str(file))
    except OSError:
        return None
