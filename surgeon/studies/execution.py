"""A task that is being done: one process after the other, watched from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from surgeon.core.atomic import staged
from surgeon.core.errors import SurgeonError
from surgeon.core.reading import parse_json, read_bounded
from surgeon.studies.tasks import Step, Task

SECONDS_BETWEEN_LOOKS = 0.5
MOST_LOG_BYTES = 1 << 16
PATIENCE = 60.0
"""Seconds for a process that was asked to stop."""


@dataclass
class Notes:
    """How the processes of a task have ended."""

    error: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    """Of each finished step, over all attempts."""
    peak_bytes: int = 0
    """The most memory that its processes had at the same time."""

    @classmethod
    def read(cls, path: Path) -> Notes:
        """Those of an earlier attempt; none where they cannot be read, since they only inform."""
        with suppress(SurgeonError, ValueError, TypeError):
            return cls(**parse_json(read_bounded(path, "notes of a run", 1 << 20)))
        return cls()

    def write(self, path: Path) -> None:
        with suppress(SurgeonError), staged(path.parent, (path.name,), owner=path.stem) as stage:
            (stage / path.name).write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")


class Running:
    """A task at work. `poll` says whether it has ended; nothing happens between two calls of it."""

    def __init__(self, task: Task, threads: int) -> None:
        self.task, self.threads = task, threads
        self.notes = Notes.read(task.notes)
        self.notes.error = ""
        self.notes.write(task.notes)  # an earlier failure is none any more
        self._steps = iter(task.steps)
        self._process: subprocess.Popen[bytes] | None = None
        self._step: Step | None = None
        self._looked = self._begun = 0.0
        self._start_next()

    def poll(self) -> bool:
        """Whether it has ended; then `notes.error` says if it failed."""
        if self._process is None:
            return True
        if (now := time.monotonic()) - self._looked > SECONDS_BETWEEN_LOOKS:
            self._looked = now
            self.notes.peak_bytes = max(self.notes.peak_bytes, memory_of(self._process.pid))
        code = self._process.poll()
        if code is None:
            return False
        self._ended(code)
        return self._process is None

    @property
    def is_training(self) -> bool:
        """Whether it has trained an epoch, so that its memory is known."""
        return progress_of(self.task.log) != ""

    def interrupt(self) -> None:
        """Ask the process to save what it has and to stop."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        """Wait until it has; not forever."""
        if self._process is None:
            return
        try:
            self._process.wait(PATIENCE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.kill()
            self._process.wait()

    def _start_next(self) -> None:
        self._process = None
        self._step = next((step for step in self._steps if not step.is_done), None)
        if self._step is None:
            self.notes.write(self.task.notes)
            return
        try:
            for folder in (
                self._step.file.parent.parent if self._step.run else self._step.file.parent,
                self.task.log.parent,
            ):
                folder.mkdir(parents=True, exist_ok=True)
            if self._step.run is not None:  # what was measured of an earlier network is not of the one to come
                for step in self.task.steps:
                    step.file.unlink(missing_ok=True)
            with self.task.log.open("ab") as log:
                log.write(f"$ surgeon {' '.join(self._step.command(self.threads))}\n".encode())
                log.flush()
                self._process = _start(self.task, self._step, self.threads, log)
        except OSError as error:
            self._fail(f"{self._step.what}: {error.strerror or error}")
        self._begun = self._looked = time.monotonic()

    def _ended(self, code: int) -> None:
        assert self._step is not None
        step, seconds = self._step, time.monotonic() - self._begun
        self.notes.seconds[step.what] = self.notes.seconds.get(step.what, 0.0) + seconds
        if code == 0 and step.is_done:
            self._start_next()
        elif code < 0:
            name = signal.Signals(-code).name
            memory = " (is there enough memory?)" if -code == signal.SIGKILL else ""
            self._fail(f"{step.what} was killed by {name}{memory}")
        else:
            self._fail(f"{step.what}: {error_in(self.task.log) or f'exit code {code}'}")

    def _fail(self, error: str) -> None:
        self._process = None
        self.notes.error = error
        self.notes.write(self.task.notes)


def _start(task: Task, step: Step, threads: int, log: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "surgeon.studies.worker", str(task.lock), *step.command(threads)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # by whose end it notices that this process has gone
        stdout=subprocess.DEVNULL,
        stderr=log,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        start_new_session=True,  # Ctrl-C at the terminal reaches this process alone, which passes it on once
    )


def memory_of(pid: int) -> int:
    """Bytes that a process and its children have; 0 where the system does not tell."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        own = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, ValueError, IndexError):
        return 0
    return own + sum(memory_of(int(child)) for child in children)


def _tail(log: Path) -> list[str]:
    """The last lines since the last command."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - MOST_LOG_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition("$ surgeon ")[2].splitlines()


def error_in(log: Path) -> str:
    """The sentence that the last command ended with."""
    lines = _tail(log)
    told = [line for line in lines if line.startswith("Error: ")]
    return (
        told[-1].removeprefix("Error: ") if told else next((line for line in reversed(lines[1:]) if line.strip()), "")
    )


def progress_of(log: Path) -> str:
    """How far training is: `epoch 3/40`, or nothing if it has not said so yet."""
    told = [line for line in _tail(log) if line.startswith("epoch ")]
    return " ".join(told[-1].split()[:2]) if told else ""
