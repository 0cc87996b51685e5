"""The memory of a process and of those it has started: pages that several share count in proportion (PSS; Linux)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

SECONDS_BETWEEN_LOOKS = 0.05
PROC = Path("/proc")


def peak_of(command: Sequence[str]) -> float:
    """MiB at most while a command runs, as often as we look; what it prints is not shown."""
    peak = 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(_proportional_kib, _family(process.pid))) / 1024)
            time.sleep(SECONDS_BETWEEN_LOOKS)
        assert process.stderr is not None
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, stderr=process.stderr.read())
    return peak


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for process in PROC.glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
        children.setdefault(parent, []).append(int(process.name))
    found = [pid]
    for parent in found:  # which grows
        found += children.get(parent, [])
    return found


def _proportional_kib(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
