"""Around every command: Ctrl-C, tracebacks for those who ask, and pipes."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from surgeon.core.errors import SurgeonError
from tests.cli.running import PAUSE_AFTER_WRITING_THE_WEIGHTS, Process, command, contents, invoke, run, sentence

# --- Ctrl-C


@pytest.mark.parametrize(
    "moment",
    ["open_model", "writing.check_destination", "writing.save_file", "writing.model_card", "writing.sha256_of"],
)
def test_ctrl_c_at_any_moment(moment: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"surgeon.checkpoint.{moment}", interrupt)
    outcome = invoke("convert", "digits-resnet8", "--bn", "example-weighted", "-o", "out")
    assert outcome.code == 130
    assert outcome.stdout == ""
    assert outcome.stderr == "Interrupted; nothing was left half-written.\n"
    assert not list(here.iterdir())


def test_a_real_ctrl_c_while_writing(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    arguments = ["convert", "digits-resnet8", "--bn", "example-weighted", "-o", "out"]
    process = Process(PAUSE_AFTER_WRITING_THE_WEIGHTS, *arguments, streams=tmp_path_factory.mktemp("streams"))
    process.wait_until(lambda: process.has_printed("written\n"))
    assert list(contents(here))  # there is something to be left behind
    process.send(signal.SIGINT)
    outcome = process.outcome()
    assert outcome.code == 130
    assert outcome.stderr.startswith("Interrupted; nothing was left half-written.\n")
    assert "Traceback" not in outcome.stderr
    assert not list(here.iterdir())


# --- tracebacks


def test_a_traceback_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURGEON_DEBUG", "1")
    with pytest.raises(SurgeonError, match="no rewrite 'gost'"):
        invoke("convert", "resnet18", "--bn", "gost")
    outcome = run("ls", "models", "qqqq")
    assert outcome.code == 1
    assert "Traceback (most recent call last)" in outcome.stderr
    assert "SurgeonError: Nothing matches 'qqqq'." in outcome.stderr


def test_an_unforeseen_error_is_one_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a first line\nand a second")

    monkeypatch.setattr("surgeon.checkpoint.open_model", fail)
    said = sentence(invoke("inspect", "digits-resnet8"), code=1)
    assert said.startswith("Unexpected ZeroDivisionError: a first line. Run again")
    assert "SURGEON_DEBUG=1" in said
    monkeypatch.setenv("SURGEON_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        invoke("inspect", "digits-resnet8")


# --- pipes


@pytest.mark.parametrize("arguments", [["ls", "models", "*"], ["ls", "norms"], ["--version"]], ids=" ".join)
def test_a_closed_pipe_is_no_bug(arguments: list[str]) -> None:
    """As in `surgeon ls models '*' | head -1`."""
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.wait(timeout=30)
    assert "Error" not in said


def test_a_pipe_takes_plain_text() -> None:
    outcome = run("ls", "norms", TERM="xterm-256color")
    assert "\x1b" not in outcome.stdout
    assert max(map(len, outcome.stdout.splitlines())) > 100  # no terminal, so nothing to be squeezed into
