"""Prints how many of the architectures with BatchNorm passed (here, because xdist's controller reads only this).

In a CI, hypothesis tries the same examples every time: a change is judged by what it changes. A shell lets what it
runs in the background, and all that starts from there, ignore Ctrl-C: here tests press it. Without a GPU, kernels of
Triton are interpreted, which Triton wants to know before it is first imported.
"""

from __future__ import annotations

import os
import signal

import pytest
import torch
from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    def outcomes(kind: str) -> int:
        reports = terminalreporter.stats.get(kind, [])
        return sum("test_everything.py" in report.nodeid for report in reports)

    passed, failed = outcomes("passed"), outcomes("failed") + outcomes("error")
    if passed or failed:
        terminalreporter.write_line(f"{passed} of {passed + failed} architectures with BatchNorm convert correctly")
