"""Runs the command line, in this process or in one of its own, and judges what it said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from surgeon.cli.app import app

# A program that runs a command and waits while it saves, to be stopped there.
PAUSE_AFTER_WRITING_THE_WEIGHTS = """
import time
import surgeon.checkpoint
from surgeon.cli.app import main

write = surgeon.checkpoint.save_file

def write_and_wait(*arguments):
    write(*arguments)
    print("written", flush=True)
    time.sleep(60)

surgeon.checkpoint.save_file = write_and_wait
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
