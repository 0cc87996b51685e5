"""One command of a study in a process of its own: `python -m surgeon.studies.worker LOCK COMMAND…`.

It ends when whoever started it ends, killed or not, and two processes never work on one run at the same time.
"""

from __future__ import annotations

import fcntl
import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path

GRACE = 30.0
"""Seconds for saving the state after the starter has gone. What is not saved by then is computed again."""
LONGEST_WAIT = 120.0
"""Seconds for a process that an earlier study has left to notice that."""


def main() -> None:
    """Wait for the lock, then be the command."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell ignores it
    threading.Thread(target=_end_with_starter, daemon=True).start()
    lock, *command = sys.argv[1:]
    held = Path(lock).open("ab")  # noqa: SIM115 - until this process ends
    os.register_at_fork(
        after_in_child=held.close
    )  # processes that decode images do not hold it, should they outlive us
    deadline = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                sys.exit("Error: Another process is still working on this run.")
            time.sleep(0.1)
    sys.argv = ["surgeon", *command]
    runpy.run_module("surgeon", run_name="__main__", alter_sys=True)


def _end_with_starter() -> None:
    """The starter holds the other end of standard input: it is closed when that process is gone."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(GRACE)
    os._exit(1)


if __name__ == "__main__":
    main()
