"""A sweep that is killed, interrupted, or out of room goes on where it was, with the same result in the end."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import surgeon
from surgeon.checkpoint import open_model
from tests.cli.running import COMMAND_LINE, Outcome, Process, contents, document, done, refusal
from tests.cli.test_sweep import without_times, write_digits

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
DIGITS = ("--data", "digits", "--split", "validation")
# Small batches, so that there are many blocks.
LONG = (
    "sweep",
    "digits-resnet8",
    *DIGITS,
    "--limit",
    200,
    "--batch-size",
    4,
    "--alpha",
    "0:0.8:9",
    "--metric",
    "cross-entropy",
)
SHORT = ("sweep", "digits-resnet8", *DIGITS, "--limit", 60, "--batch-size", 4, "--alpha", "0,0.3,0.6")


def result(folder: Path) -> Any:
    return without_times(json.loads((folder / "result.json").read_text("utf-8")))


def lines(folder: Path) -> int:
    journal = folder / "journal.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def stopped(arguments: tuple[object, ...], folder: Path, how: signal.Signals) -> Outcome:
    """What is left of a sweep in a process of its own that is stopped when it has journalled a few blocks."""
    process = Process(COMMAND_LINE, *arguments, "-o", folder, streams=folder.parent)
    process.wait_until(lambda: lines(folder) >= 3)
    process.send(how)
    return process.outcome()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted") / "out"
    done(*LONG, "--method", "grid", "--confirm", "-o", folder)
    return folder


def test_a_killed_sweep_goes_on_to_the_same_result(tmp_path: Path, uninterrupted: Path) -> None:
    arguments, folder = (*LONG, "--method", "grid", "--confirm"), tmp_path / "out"
    assert stopped(arguments, folder, signal.SIGKILL).code == -signal.SIGKILL
    assert not (folder / "result.json").exists()
    before = (folder / "journal.jsonl").read_bytes()
    assert 3 <= lines(folder) < lines(uninterrupted)
    done(*arguments, "-o", folder)
    assert result(folder) == result(uninterrupted)
    assert (folder / "journal.jsonl").read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert (folder / "journal.jsonl").read_bytes() == (uninterrupted / "journal.jsonl").read_bytes()


def test_an_interrupted_sweep_says_so_and_goes_on(tmp_path: Path, uninterrupted: Path) -> None:
    arguments, folder = (*LONG, "--method", "grid", "--confirm"), tmp_path / "out"
    outcome = stopped(arguments, folder, signal.SIGINT)
    assert outcome.code == 130
    assert outcome.stdout == ""
    told, command = outcome.stderr.splitlines()[-2:]
    assert told == f"Interrupted; {folder} has what was measured so far. To continue:"
    assert command == shlex.join(["surgeon", *map(str, arguments), "-o", str(folder)])
    assert "Traceback" not in outcome.stderr
    assert set(contents(folder)) == {"journal.jsonl"}
    done(*arguments, "-o", folder)
    assert result(folder) == result(uninterrupted)


def test_a_race_with_learning_goes_on_from_any_phase(tmp_path: Path) -> None:
    """Tear the journal of a finished sweep in its first line, while choosing, and after learning."""
    arguments = (*SHORT, "--per-layer")
    done(*arguments, "-o", tmp_path / "whole")
    journal = (tmp_path / "whole" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    assert len(journal) > 6
    for kept in (0, len(journal) - 4, len(journal) - 2):
        folder = tmp_path / f"kept{kept}"
        folder.mkdir()
        torn = journal[kept][: 7 * kept + 1]
        (folder / "journal.jsonl").write_bytes(b"".join(journal[:kept]) + torn)
        done(*arguments, "-o", folder)
        assert result(folder) == result(tmp_path / "whole"), kept


# --- a folder of another sweep


@pytest.fixture(scope="module")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "out"
    done(*SHORT, "-o", folder)
    return folder


@pytest.fixture
def finished(_finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(_finished, tmp_path / "finished")


def changed(**options: object) -> tuple[object, ...]:
    """The short sweep with other options."""
    arguments = list(SHORT)
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if option in arguments:
            arguments[arguments.index(option) + 1] = value
        else:
            arguments += [option] if value is True else [option, value]
    return tuple(arguments)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"split": "test"}, "data"),
        ({"limit": 61}, "data"),
        ({"alpha": "0,0.3"}, "values"),
        ({"metric": "ece"}, "metric"),
        ({"method": "grid"}, "method"),
        ({"confirm": True}, "data"),
        ({"per_channel": True}, "data and learning"),
        ({"batch_size": 5}, "batch size"),
        ({"layers": "layer1.*"}, "rewriting"),
        ({"mean": "0.4"}, "preprocessing"),
        ({"tta": "flip"}, "views"),
        ({"skip_bad": True}, "treatment of bad images"),
    ],
)
def test_another_sweep_is_not_mixed_in(options: dict[str, object], named: str, finished: Path) -> None:
    before = contents(finished)
    said = refusal(*changed(**options), "-o", finished)
    assert f"other settings: {named}. Choose" in said
    assert contents(finished) == before


def test_another_network_is_not_mixed_in(finished: Path, tmp_path: Path) -> None:
    model = open_model("digits-resnet8").model
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    surgeon.save(model, tmp_path / "other")
    before = contents(finished)
    said = refusal(*(tmp_path / "other" if part == "digits-resnet8" else part for part in SHORT), "-o", finished)
    assert "other settings: model. Choose" in said
    assert contents(finished) == before


def test_the_same_weights_with_other_rewrites_are_not_mixed_in(tmp_path: Path) -> None:
    weights = open_model("digits-resnet8").model.state_dict()
    for groups in (2, 4):
        loaded = open_model("digits-resnet8", pretrained=False)
        loaded.model.load_state_dict(weights)
        model = surgeon.convert(loaded.model, f"batch-group:channel_groups={groups}", "example-weighted")
        surgeon.save(model, tmp_path / f"groups{groups}", origin=loaded.origin)
    first, second = ([tmp_path / f"groups{n}" if part == "digits-resnet8" else part for part in SHORT] for n in (2, 4))
    done(*first, "-o", tmp_path / "out")
    before = contents(tmp_path / "out")
    assert "other settings: rewriting" in refusal(*second, "-o", tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_a_damaged_journal_is_refused_and_kept(finished: Path) -> None:
    journal = finished / "journal.jsonl"
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 1
    journal.write_bytes(bytes(content))
    before = contents(finished)
    assert "is damaged in line" in refusal(*SHORT, "-o", finished)
    assert contents(finished) == before
    done(*SHORT, "-o", finished, "--overwrite")


# --- disks


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into read-only folders")
@pytest.mark.parametrize("place", ["", "below", "below/deep"])
def test_a_read_only_folder(place: str, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "not writable" in refusal(*SHORT, "-o", tmp_path / "locked" / place, code=1)
    assert not list((tmp_path / "locked").iterdir())


def test_a_folder_that_may_not_be_written_is_told_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("surgeon.checkpoint.open_model", lambda *_, **__: pytest.fail("the model was opened"))
    assert f"{tmp_path} is not writable" in refusal(*SHORT, "-o", tmp_path / "out", code=1)


def failing_after(passed: int, step: Callable[..., Any]) -> Callable[..., Any]:
    """A step that works so many times, and then finds the disk full."""
    left = passed

    def call(*arguments: Any, **keywords: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise FULL
        return step(*arguments, **keywords)

    return call


@pytest.mark.parametrize("passed", [0, 1, 3])
def test_a_full_disk_while_journalling(passed: int, tmp_path: Path, finished: Path) -> None:
    folder = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        # The first line takes two: one of the file, and one of the folder that it is new in.
        patch.setattr("os.fsync", failing_after(passed + (passed > 0), os.fsync))
        said = refusal(*SHORT, "-o", folder, code=1)
    assert said.startswith(f"Could not write {folder / 'journal.jsonl'}: No space left on device.")
    assert lines(folder) == passed
    assert set(contents(folder)) == {"journal.jsonl"}
    done(*SHORT, "-o", folder)
    assert result(folder) == result(finished)


@pytest.mark.parametrize("step", ["pathlib.Path.write_text", "os.replace", "matplotlib.figure.Figure.savefig"])
def test_a_full_disk_while_reporting(
    step: str, tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the report or nothing; and nothing is computed again."""
    folder = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, failing_after(0, open))
        said = refusal(*SHORT, "-o", folder, code=1)
    assert said == f"Could not write {folder}: No space left on device."
    assert (folder / "journal.jsonl").read_bytes() == (finished / "journal.jsonl").read_bytes()
    assert set(contents(folder)) == {"journal.jsonl"}
    monkeypatch.setattr("surgeon.measuring.axes.AlphaAxis.logits", lambda *_, **__: pytest.fail("predicted again"))
    done(*SHORT, "-o", folder)
    assert result(folder) == result(finished)


def test_a_full_disk_while_applying_keeps_the_journal(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("surgeon.checkpoint.writing.save_file", failing_after(0, open))
        said = refusal(*SHORT, "--apply", "-o", folder, code=1)
    assert "No space left on device" in said
    assert set(contents(folder)) == {"journal.jsonl"}
    done(*SHORT, "--apply", "-o", folder)
    done("verify", folder / "checkpoint")


def test_what_a_killed_report_leaves_does_not_hinder(finished: Path) -> None:
    expected = result(finished)
    for name in ("result.json", "report.html", "curves.png"):
        (finished / name).unlink()
    (finished / ".unfinished-x").mkdir()
    (finished / ".unfinished-x" / "result.json").write_text("{")
    done(*SHORT, "-o", finished)
    assert result(finished) == expected
    assert not list(finished.glob(".unfinished*"))


# --- images that cannot be read


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Forty pictures, of which one in the middle and one elsewhere are none."""
    folder = write_digits(tmp_path / "images")
    (folder / "5" / "1.png").write_bytes(b"no picture")
    (folder / "7" / "2.png").write_bytes(b"")
    return folder


def test_an_unreadable_image_ends_the_sweep_and_is_named(images: Path, tmp_path: Path) -> None:
    arguments = ("sweep", "digits-resnet8", "--data", images, "--batch-size", 1, "--alpha", "0,0.3", "--method", "grid")
    said = refusal(*arguments, "-o", tmp_path / "out")
    assert "5/1.png" in said or "7/2.png" in said
    assert "--skip-bad" in said
    assert set(contents(tmp_path / "out")) == {"journal.jsonl"}
    before = contents(tmp_path / "out")
    assert lines(tmp_path / "out") > 1  # what came before it is kept
    assert refusal(*arguments, "-o", tmp_path / "out") == said
    assert contents(tmp_path / "out") == before


def test_skipped_images_are_listed_also_after_going_on(images: Path, tmp_path: Path) -> None:
    arguments = (
        *("sweep", "digits-resnet8", "--data", images, "--batch-size", 2, "--alpha", "0,0.3"),
        *("--method", "grid", "--skip-bad", "--confirm"),
    )
    whole = document(*arguments, "-o", tmp_path / "whole")
    assert sorted(name.split(" ")[0] for name in whole["bad_images"]) == ["5/1.png", "7/2.png"]
    assert whole["choosing_images"] + whole["confirming_images"] == 38
    assert len(json.loads(done(*arguments, "--json").stdout)["bad_images"]) == 2
    journal = (tmp_path / "whole" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    for kept in (1, len(journal) // 2, len(journal) - 1):
        folder = tmp_path / f"kept{kept}"
        folder.mkdir()
        (folder / "journal.jsonl").write_bytes(b"".join(journal[:kept]))
        again = document(*arguments, "-o", folder)
        assert without_times(again) == without_times(whole), kept


def test_a_race_begins_with_unreadable_images(tmp_path: Path) -> None:
    folder = write_digits(tmp_path / "images", each=1)
    first = first_of_the_order(folder)
    first.write_bytes(b"no picture")
    arguments = ("sweep", "digits-resnet8", "--data", folder, "--batch-size", 1, "--alpha", "0,0.3", "--skip-bad")
    assert document(*arguments, "--split", "all", "--method", "race")["choosing_images"] == 9


def first_of_the_order(folder: Path) -> Path:
    """The picture that a sweep looks at first."""
    import numpy as np

    from surgeon.commands.sweep.operation import ORDER_SEED

    files = sorted(folder.rglob("*.png"))
    return files[int(np.random.default_rng(ORDER_SEED).permutation(len(files))[0])]


def test_no_readable_image_at_all_is_told(tmp_path: Path) -> None:
    folder = write_digits(tmp_path / "images", each=1)
    for path in folder.rglob("*.png"):
        path.write_bytes(b"no picture")
    said = refusal("sweep", "digits-resnet8", "--data", folder, "--alpha", "0,0.3", "--skip-bad")
    assert "images" in said
