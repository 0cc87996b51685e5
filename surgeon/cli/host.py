"""What the command line changes in its own process; a library call leaves its host alone."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import warnings

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_LARGEST = 2**31 - 1


def set_up_process() -> None:
    """Make long work fast and quiet, and independent of packages that have nothing to do with it."""
    # Looking for plugins of its own, pydantic reads the metadata of every installed package, and raises if one
    # is damaged.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Importing torch makes a million objects that live to the end. Searching them for garbage while
    # they are made takes seconds.
    gc.set_threshold(200_000)
    keep_heap()
    # Pillow remarks on odd metadata of single photographs, from the decoding threads, where
    # warnings.catch_warnings is not safe. ImageNet alone has dozens of them.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")


def keep_heap() -> None:
    """Let glibc keep freed memory: giving every layer's output back to the system costs more than the layer."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        mallopt(_M_TRIM_THRESHOLD, _LARGEST)
