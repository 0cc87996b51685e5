"""Two processes, launched by torchrun or accelerate, share the work, find exactly what one finds, and fail as one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.cli.running import Outcome, document
from tests.cli.test_sweep import write_digits

TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# accelerate launches one process only where it is told to use the CPU.
ACCELERATE = ("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2")
FILES = ["curves.png", "journal.jsonl", "report.html", "result.json"]
LONGEST = 120  # seconds, after which processes are taken to wait for one another

# 90 images in batches of 20: five batches, the last of which is smaller.
EVAL = ("eval", "digits-resnet8", "--data", "digits", "--limit", 90, "--batch-size", 20)
SWEEP = (
    *("sweep", "digits-resnet8", "--data", "digits", "--limit", 90, "--batch-size", 4, "--alpha", "0,0.2,0.4,0.6"),
    *("--metric", "cross-entropy", "--confirm", "--per-layer"),
)

# The command line; afterwards each process leaves a note of how many batches it has predicted.
COUNTING = """
import atexit, os, pathlib
from surgeon.cli.app import main
from surgeon.measuring.inference import InferenceSettings

predict, batches = InferenceSettings.logits, []

def counted(*arguments):
    batches.append(1)
    return predict(*arguments)

InferenceSettings.logits = counted
note = pathlib.Path(__file__).with_name(f"batches-of-{os.environ['RANK']}")
atexit.register(lambda: note.write_text(str(len(batches))))
main()
"""


def launched(launcher: tuple[str, ...], *arguments: object) -> Outcome:
    """Run in processes of one thread each, on which the last bits of figures depend."""
    finished = subprocess.run(
        [sys.executable, "-m", *launcher, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    return Outcome(finished.returncode, finished.stdout, finished.stderr)


@pytest.fixture(scope="module")
def _one_thread() -> Iterator[None]:
    """For what this process finds alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def by_one(_one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process finds."""
    folder = tmp_path_factory.mktemp("by-one") / "out"
    document(*SWEEP, "-o", folder)
    return folder


def result(folder: Path) -> Any:
    return timeless(json.loads((folder / "result.json").read_text("utf-8")))


def timeless(record: Any) -> Any:
    """A result but for what depends on the time and on where it is."""
    if isinstance(record, dict):
        other = {"seconds", "images_per_second", "logits_file", "checkpoint"}
        return {name: timeless(value) for name, value in record.items() if name not in other}
    return [timeless(value) for value in record] if isinstance(record, list) else record


def the_document(outcome: Outcome) -> Any:
    """The only thing on stdout."""
    assert outcome.code == 0, outcome.stderr
    return timeless(json.loads(outcome.stdout))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(COUNTING)
    return path


def batches_predicted(program: Path) -> list[int]:
    return [int(program.with_name(f"batches-of-{rank}").read_text()) for rank in (0, 1)]


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.long
def test_an_evaluation_by_two_is_that_of_one(tmp_path: Path, program: Path) -> None:
    """Five batches: three for one process and two for the other."""
    expected = timeless(document(*EVAL, "--save-features", "--save-logits", tmp_path / "one.safetensors"))
    saving = ("--save-features", "--save-logits", tmp_path / "two.safetensors")
    together = launched(TORCHRUN, program, *EVAL, "--json", *saving)
    assert the_document(together) == expected
    assert batches_predicted(program) == [3, 2]
    one, two = (load_file(tmp_path / f"{name}.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name]), name
    assert len(one["labels"]) == 90


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.long
def test_an_ensemble_by_two_is_that_of_one(tmp_path: Path, program: Path) -> None:
    for size in (2, 8):
        document("convert", "digits-resnet8", "--bn", f"example-weighted:alpha={size / 10}", "-o", tmp_path / f"{size}")
    members = ("ensemble", tmp_path / "2", tmp_path / "8", "--data", "digits", "--limit", 90, "--batch-size", 20)
    expected = timeless(document(*members, "--greedy", "-o", tmp_path / "one"))
    together = launched(TORCHRUN, program, *members, "--greedy", "--json", "-o", tmp_path / "two")
    assert the_document(together) == expected == result(tmp_path / "two")
    # Five batches to choose and five to report, by two members.
    assert batches_predicted(program) == [(3 + 3) * 2, (2 + 2) * 2]


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.long
def test_affinity_by_two_is_that_of_one(program: Path) -> None:
    """Crops, noise and mixes are drawn by seed and image, whoever draws; the last of 41 images joins its batch."""
    augments = ("standard", "gaussian-noise", "cutmix", "vh-mixup", "augmix")
    images = ("affinity", "digits-resnet8", "--data", "digits", "--limit", 41, "--batch-size", 8)
    arguments = (*images, *(word for name in augments for word in ("--augment", name)))
    expected = timeless(document(*arguments))
    assert the_document(launched(TORCHRUN, program, *arguments, "--json")) == expected
    # Five batches, clean and augmented.
    assert batches_predicted(program) == [3 * (1 + len(augments)), 2 * (1 + len(augments))]


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.long
def test_merging_by_two_is_that_of_one(tmp_path: Path, program: Path) -> None:
    document("convert", "digits-resnet8", "--bn", "split", "-o", tmp_path / "split")
    arguments = ("merge", tmp_path / "split", "--lambda", 0.3, "--data", "digits", "--limit", 200, "--overwrite")
    expected = timeless(document(*arguments, "-o", tmp_path / "merged"))
    weights = load_file(tmp_path / "merged" / "model.safetensors")
    assert the_document(launched(TORCHRUN, program, *arguments, "-o", tmp_path / "merged", "--json")) == expected
    assert batches_predicted(program) == [2, 2]  # one of two batches each, by both networks
    again = load_file(tmp_path / "merged" / "model.safetensors")
    assert again.keys() == weights.keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in weights.items())


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.long
def test_recalibrating_by_two_is_that_of_one(tmp_path: Path, program: Path) -> None:
    """Each of them estimates from all images, and predicts half of the batches."""
    images = ("--data", "digits", "--limit", 90, "--batch-size", 10, "--overwrite", "--confirm", "--tent")
    arguments = ("recalibrate", "digits-resnet8", *images, "-o", tmp_path / "out")
    expected = _without_times(document(*arguments))
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert _without_times(the_document(launched(TORCHRUN, program, *arguments, "--json"))) == expected
    again = load_file(tmp_path / "out" / "model.safetensors")
    assert again.keys() == weights.keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in weights.items())
    # Five batches to compare and five to confirm, by both networks.
    assert batches_predicted(program) == [(3 + 3) * 2, (2 + 2) * 2]


def _without_times(record: Any) -> Any:
    return {name: value for name, value in timeless(record).items() if name != "seconds_estimating"}


def test_a_sweep_by_two_is_that_of_one(by_one: Path, tmp_path: Path, program: Path) -> None:
    together = launched(ACCELERATE, program, *SWEEP, "--json", "-o", tmp_path / "two")
    assert the_document(together) == result(by_one) == result(tmp_path / "two")
    assert batches_predicted(program) == [6 + 6 + 6, 6 + 6 + 6]  # 12 batches to choose, to measure and to confirm
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == FILES
    one, two = ((folder / "journal.jsonl").read_bytes() for folder in (by_one, tmp_path / "two"))
    assert one.count(b"\n") == two.count(b"\n")


@pytest.mark.long
def test_two_go_on_where_one_was(by_one: Path, tmp_path: Path) -> None:
    journal = (by_one / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "journal.jsonl").write_bytes(b"".join(journal[:3]) + journal[3][:50])
    together = launched(TORCHRUN, "-m", "surgeon", *SWEEP, "--json", "-o", tmp_path / "again")
    assert the_document(together) == result(by_one)


@pytest.mark.long
def test_an_image_that_one_of_two_cannot_read_ends_both(tmp_path: Path) -> None:
    """The error is told once, and nobody waits for the other."""
    folder = write_digits(tmp_path / "images")
    (folder / "5" / "1.png").write_bytes(b"no picture")
    arguments = ("sweep", "digits-resnet8", "--data", folder, "--batch-size", 4, "--alpha", "0,0.3", "--method", "grid")
    outcome = launched(TORCHRUN, "-m", "surgeon", *arguments, "-o", tmp_path / "out")
    assert outcome.code != 0
    assert outcome.stdout == ""
    told = [line for line in outcome.stderr.splitlines() if line.startswith("Error: ")]
    assert len(told) == 1, outcome.stderr
    assert "5/1.png" in told[0]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["journal.jsonl"]
