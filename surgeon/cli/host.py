"""What the command line changes in its own process; a library call leaves its host alone."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import warnings
from os.path import expanduser

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


def expand_home(arguments: list[str]) -> list[str]:
    """`~/…` as the home folder also where the shell leaves it: in quotes, and in `--output=~/…`."""
    return [
        re.sub(r"^(--[\w-]+=)?(~(?=/).*)", lambda found: (found[1] or "") + expanduser(found[2]), one)
        for one in arguments
    ]


def keep_heap() -> None:
    """Let glibc keep freed memory: giving every layer's output back to the system costs more than the layer."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        mallopt(_M_TRIM_THRESHOLD, _LARGEST)
