"""Tasks on this machine: so many processes at a time, and nothing more clever than that."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from surgeon.data.loaders import usable_cores
from surgeon.studies.execution import Notes, Running
from surgeon.studies.tasks import Task

TICK = 0.05
SHARE_OF_MEMORY, MARGIN = 0.8, 1.2


class Watcher(Protocol):
    """Somebody who hears how a study goes on."""

    def began(self, task: Task) -> None:
        """A task was started."""

    def ended(self, task: Task, error: str) -> None:
        """A task has ended; `error` says why it failed, if it did."""

    def says(self, sentence: str) -> None:
        """Something else that is worth knowing."""


def run_locally(tasks: Sequence[Task], jobs: int | None, memory: float | None, watcher: Watcher) -> None:
    """Do all tasks, `jobs` at a time; a task that fails does not stop the others.

    Args:
        tasks: What is missing.
        jobs: How many at a time; None: as many as there are cores and memory for.
        memory: Of one run, in GiB; None: measured on the first run, which begins alone.
        watcher: Who hears of it.
    """
    room = _Room(len(tasks), jobs, memory, watcher.says)
    waiting, running = deque(tasks), list[Running]()
    try:
        while waiting or running:
            while waiting and len(running) < room.jobs:
                task = waiting.popleft()
                watcher.began(task)
                running.append(Running(task, room.threads))
            for one in list(running):
                if one.poll():
                    running.remove(one)
                    watcher.ended(one.task, one.notes.error)
            if running:
                room.look_at(running[0].notes, running[0].is_training if room.is_open else False)
                time.sleep(TICK)
    except BaseException:
        for one in running:
            one.interrupt()
        for one in running:
            one.stop()
        raise


class _Room:
    """How many runs there is room for. Unless that is given, the first run begins alone and its memory is measured."""

    def __init__(self, tasks: int, jobs: int | None, memory: float | None, say: Callable[[str], None]) -> None:
        self.say = say
        self.most = jobs or (1 if _has_accelerator() else min(usable_cores(), tasks))
        self.is_open = jobs is None and memory is None and self.most > 1
        self.available = available_memory()
        self.jobs = 1 if self.is_open else self.most
        if jobs is None and memory is not None:
            self._fit(memory * 2**30, "as the study says")

    @property
    def threads(self) -> int:
        """Of each run; while it is not yet known how many there will be, as if there were as many as possible."""
        return max(1, usable_cores() // (self.most if self.is_open else self.jobs))

    def look_at(self, notes: Notes, is_training: bool) -> None:
        """See what the first run takes, once it has trained an epoch."""
        if self.is_open and is_training:
            self.is_open = False
            self._fit(notes.peak_bytes, "measured")

    def _fit(self, needed: float, how: str) -> None:
        fitting = int(SHARE_OF_MEMORY * self.available / (MARGIN * needed)) if needed and self.available else self.most
        self.jobs = max(1, min(self.most, fitting))
        self.say(
            f"A run takes {needed / 2**30:.1f} GiB of memory ({how}), {self.available / 2**30:.1f} GiB are free: "
            f"{self.jobs} at a time. Override with --jobs N."
        )


def available_memory() -> int:
    """Bytes that are free on this machine; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 0


def _has_accelerator() -> bool:
    """Runs that share one are left to whoever asks for that."""
    from surgeon.core.devices import pick_device

    return pick_device().type != "cpu"
