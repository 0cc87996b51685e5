"""Saving is all or nothing: whatever happens, a destination holds the new checkpoint or what it held before."""

from __future__ import annotations

import errno
import itertools
import os
import pkgutil
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from torch import nn

import surgeon
from surgeon.checkpoint.record import find_problems
from surgeon.core.errors import ExitCode, SurgeonError
from tests.cli.running import (
    FILES,
    PAUSE_AFTER_WRITING_THE_WEIGHTS,
    Process,
    contents,
    done,
    invoke,
    operations,
    refusal,
    sentence,
)
from tests.faults.conftest import converted

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
CONVERT = ("convert", "digits-resnet8", "--bn", "example-weighted")


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return converted("example-weighted:alpha=0.25")


STEPS = [
    "os.mkdir",
    "os.fsync",
    "os.replace",
    "os.rename",
    "pathlib.Path.write_text",
    "surgeon.checkpoint.writing.save_file",
]


class Trouble:
    """Lets a save pass a number of steps that touch the disk and fails the next one, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: BaseException, passed: int) -> None:
        self.error, self.left, self.met = error, passed, ""
        for name in STEPS:
            monkeypatch.setattr(name, self.watched(name, pkgutil.resolve_name(name)))

    def watched(self, name: str, step: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **keywords: object) -> object:
            self.left -= 1
            if self.left == -1:
                self.met = name
                raise self.error
            return step(*arguments, **keywords)

        return call


def failed_saves(model: nn.Module, folder: Callable[[], Path], error: BaseException) -> Iterator[tuple[Path, str]]:
    """Saves into fresh folders, the first of which fails at its first step, the second at its second, and so on."""
    for passed in itertools.count():
        destination = folder()
        with pytest.MonkeyPatch.context() as patch, suppress(SurgeonError, KeyboardInterrupt):
            trouble = Trouble(patch, error, passed)
            surgeon.save(model, destination, overwrite=True)
            if trouble.met:  # it could do without that step
                continue
            assert passed >= 8, "a save has more steps than that"
            return
        yield destination, f"failed at step {passed + 1}, {trouble.met}"


def whole(folder: Path) -> bool:
    return sorted(contents(folder)) == FILES and not find_problems(folder)


ERRORS = {"disk full": FULL, "interrupted": KeyboardInterrupt()}


@pytest.mark.parametrize("error", ERRORS)
def test_a_failed_save_leaves_nothing(error: str, model: nn.Module, tmp_path: Path) -> None:
    for folder, step in failed_saves(model, lambda: tmp_path / "new" / "and" / "deep", ERRORS[error]):
        assert not list(tmp_path.iterdir()) or whole(folder), step


@pytest.mark.parametrize("error", ERRORS)
def test_a_failed_save_leaves_an_empty_folder_empty(error: str, model: nn.Module, tmp_path: Path) -> None:
    def empty() -> Path:
        return Path(tempfile.mkdtemp(dir=tmp_path))

    for folder, step in failed_saves(model, empty, ERRORS[error]):
        assert not list(folder.iterdir()) or whole(folder), step


@pytest.mark.parametrize("error", ERRORS)
def test_a_failed_save_never_leaves_a_mixture_of_old_and_new(error: str, model: nn.Module, checkpoint: Path) -> None:
    def copy() -> Path:
        return shutil.copytree(checkpoint, Path(tempfile.mkdtemp(dir=checkpoint.parent)) / "copy")

    for folder, step in failed_saves(model, copy, ERRORS[error]):
        assert whole(folder), step


def test_a_full_disk_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_full(*_: object) -> None:
        raise FULL

    monkeypatch.setattr("surgeon.checkpoint.writing.save_file", disk_full)
    said = refusal(*CONVERT, "-o", tmp_path / "out", code=1)
    assert str(tmp_path / "out") in said
    assert "No space left on device" in said
    assert not list(tmp_path.iterdir())


LITTLE_ROOM = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
from surgeon.cli.app import main
main()
"""


def test_a_file_that_really_cannot_be_written_is_told_in_one_sentence(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """safetensors reports what the system says in an error of its own."""
    streams = tmp_path_factory.mktemp("streams")
    process = Process(LITTLE_ROOM, *CONVERT, "-o", tmp_path / "deep" / "out", streams=streams)
    said = sentence(process.outcome(), code=1)
    assert said.startswith(f"Could not write {tmp_path / 'deep' / 'out'}")
    assert "File too large" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into read-only folders")
@pytest.mark.parametrize("place", ["", "below", "below/deep"])
def test_a_read_only_folder(place: str, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    said = refusal(*CONVERT, "-o", tmp_path / "locked" / place, code=1)
    assert "not writable" in said
    assert not list((tmp_path / "locked").iterdir())


def test_a_folder_that_may_not_be_written_is_told_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("surgeon.checkpoint.open_model", lambda *_, **__: pytest.fail("the model was opened"))
    said = refusal(*CONVERT, "-o", tmp_path / "out", code=1)
    assert f"{tmp_path} is not writable" in said


def test_an_existing_folder_is_kept_without_overwrite(checkpoint: Path, model: nn.Module) -> None:
    before = contents(checkpoint)
    with pytest.raises(SurgeonError, match="already exists") as caught:
        surgeon.save(model, checkpoint)
    assert caught.value.exit_code == ExitCode.USAGE
    assert contents(checkpoint) == before


def test_other_files_of_an_overwritten_folder_are_kept(checkpoint: Path, model: nn.Module) -> None:
    (checkpoint / "notes.txt").write_text("mine")
    surgeon.save(model, checkpoint, overwrite=True)
    assert sorted(contents(checkpoint)) == sorted([*FILES, "notes.txt"])


def test_files_can_be_read_by_others(model: nn.Module, tmp_path: Path) -> None:
    folder = surgeon.save(model, tmp_path / "out")
    modes = {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}
    assert len(set(modes.values())) == 1, modes


# --- killed


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """What a conversion leaves that is killed after it has written the weights: no program can clean up then."""
    folder = tmp_path / "killed"
    process = Process(PAUSE_AFTER_WRITING_THE_WEIGHTS, *CONVERT, "-o", folder, streams=tmp_path)
    process.wait_until(lambda: process.has_printed("written\n"))
    process.send(signal.SIGKILL)
    process.outcome()
    return folder


def test_what_a_killed_conversion_leaves(killed: Path) -> None:
    """One story, because the killed process takes seconds."""
    assert contents(killed)  # the weights were written somewhere, but ...
    with pytest.raises(SurgeonError, match=r"has no model\.safetensors"):
        surgeon.load(killed)
    assert invoke("verify", killed).code == 3
    assert "neither a surgeon checkpoint" in sentence(invoke("inspect", killed))
    done(*CONVERT, "-o", killed, "--overwrite")
    assert sorted(contents(killed)) == FILES
    assert list(operations(killed)["bn1"]) == ["ghost", "example-weighted"]
    done("verify", killed)
