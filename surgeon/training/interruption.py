"""Ctrl-C, taken as a wish to stop at the next good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopping_at_ctrl_c() -> Iterator[threading.Event]:
    """Ctrl-C ends training after the step; pressed again, at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:  # noqa: ARG001
        stopped.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
