"""Where the `surgeon` command begins: Ctrl-C while it is still being imported leaves no traceback."""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130  # as in core.errors, which is imported later


def main() -> None:
    """Entry point of the `surgeon` command."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell's background ignores it
    if heeded:
        signal.signal(signal.SIGINT, _leave)
    from surgeon.cli.app import main as run

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _leave(*_: object) -> None:
    os.write(2, b"Interrupted; nothing was left half-written.\n")
    os._exit(INTERRUPTED)
