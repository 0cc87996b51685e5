"""Runs the command line, in this process or in one of its own, and judges what it said."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from surgeon.cli.app import app

# Its processes are copies of one that has imported everything, which takes a process of its own seconds.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["surgeon.cli.app", "surgeon.commands.sweep.operation", "surgeon.commands.finetune.operation"]
)

COMMAND_LINE = "from surgeon.cli.app import main; main()"

# A program that runs a command and waits while it saves, to be stopped there.
PAUSE_AFTER_WRITING_THE_WEIGHTS = """
import time
import surgeon.checkpoint.writing
from surgeon.cli.app import main

write = surgeon.checkpoint.writing.save_file

def write_and_wait(*arguments):
    write(*arguments)
    print("written", flush=True)
    time.sleep(60)

surgeon.checkpoint.writing.save_file = write_and_wait
main()
"""

FILES = ["README.md", "config.json", "model.safetensors", "surgery.json"]


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code and its two streams."""

    code: int
    stdout: str
    stderr: str


def invoke(*arguments: str | Path, charset: str = "utf-8") -> Outcome:
    """Run a command in this process, where torch is loaded only once."""
    result = CliRunner(charset=charset).invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def done(*arguments: str | Path) -> Outcome:
    """Run a command that must succeed."""
    outcome = invoke(*arguments)
    assert outcome.code == 0, outcome.stderr
    return outcome


def document(*arguments: str | Path) -> Any:
    """The one JSON document that a command prints with --json."""
    return json.loads(done(*arguments, "--json").stdout)


def command(*arguments: str | Path) -> list[str]:
    """The same as a command for the shell."""
    return [sys.executable, "-m", "surgeon", *map(str, arguments)]


def run(*arguments: str | Path, **environment: str) -> Outcome:
    """Run a command in a process of its own, as users do."""
    finished = subprocess.run(
        command(*arguments), capture_output=True, text=True, env=os.environ | environment, check=False
    )
    return Outcome(finished.returncode, finished.stdout, finished.stderr)


class Process:
    """A program that runs in a process of its own, to be stopped there."""

    def __init__(self, program: str, *arguments: str | Path, streams: Path) -> None:
        self.files = [streams / f"std{name}-of-{time.monotonic_ns()}" for name in ("out", "err")]
        given = (program, [str(argument) for argument in arguments], self.files, Path.cwd())
        self.process = FORKS.Process(target=_run_program, args=given)
        self.process.start()

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait for something that the program does before it ends."""
        deadline = time.monotonic() + 120
        while not reached():
            assert self.process.is_alive(), self.files[1].read_text("utf-8")
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def has_printed(self, text: str) -> bool:
        return self.files[0].exists() and text in self.files[0].read_text("utf-8")

    def send(self, signal: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal)

    def outcome(self) -> Outcome:
        self.process.join(120)
        assert self.process.exitcode is not None
        return Outcome(self.process.exitcode, *(file.read_text("utf-8") for file in self.files))


def _run_program(program: str, arguments: list[str], files: list[Path], folder: Path) -> None:
    os.chdir(folder)
    for stream, file in zip((1, 2), files, strict=True):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream)
    sys.argv[1:] = arguments
    exec(compile(program, "program", "exec"), {"__name__": "__main__"})


def sentence(outcome: Outcome, code: int = 2) -> str:
    """What a refused command says: one line for people, nothing for programs, and the right exit code."""
    assert outcome.code == code, outcome.stderr
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("Error: ")
    assert outcome.stderr.count("\n") == 1, outcome.stderr
    return outcome.stderr.removeprefix("Error: ").strip()


def refusal(*arguments: str | Path, code: int = 2) -> str:
    return sentence(invoke(*arguments), code)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def operations(folder: Path) -> dict[str, dict[str, Any]]:
    """What a checkpoint says was done: layer -> rewrite -> options."""
    record = json.loads((folder / "surgery.json").read_text("utf-8"))
    return {
        operation["layer"]: {rewrite["name"]: rewrite["options"] for rewrite in operation["rewrites"]}
        for operation in record["plan"]["operations"]
    }
