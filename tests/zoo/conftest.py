"""Prints how many of the architectures with BatchNorm passed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _remove_checkpoint(tmp_path: Path) -> Iterator[None]:
    """Hundreds of checkpoints would fill the disk."""
    yield
    shutil.rmtree(tmp_path, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    def outcomes(kind: str) -> int:
        reports = terminalreporter.stats.get(kind, [])
        return sum("test_everything.py" in report.nodeid for report in reports)

    passed, failed = outcomes("passed"), outcomes("failed") + outcomes("error")
    if passed or failed:
        terminalreporter.write_line(f"{passed} of {passed + failed} architectures with BatchNorm convert correctly")
