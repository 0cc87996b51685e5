"""`surgeon sweep --prior`, `--sweep`, and two axes at once: found, confirmed, resumed, drawn and stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import surgeon
from surgeon.checkpoint.reading import open_model
from surgeon.data.digits import digit_pixels
from tests.cli.running import document, done, refusal

PRIORS = ("--prior", "0,16,256,inf")
KINDS: dict[str, tuple[str, ...]] = {
    "prior": PRIORS,
    "option": ("--sweep", "instance-aware.k=1,4,inf"),
    "alpha and prior": ("--alpha", "0,0.2", *PRIORS),
    "option and prior": ("--sweep", "instance-aware.k=1,4,inf", *PRIORS),
    "two options": ("--sweep", "instance-aware.k=1,4", "--sweep", "instance-aware.weight=0,0.5,1"),
}


@pytest.fixture(scope="module")
def faded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits of little contrast, which statistics of their own repair, in folders of their classes."""
    root = tmp_path_factory.mktemp("data") / "faded" / "validation"
    pixels, labels = digit_pixels("validation")
    for number, (image, label) in enumerate(zip(pixels[:240], labels[:240], strict=True)):
        folder = root / str(int(label))
        folder.mkdir(parents=True, exist_ok=True)
        grey = 110 + 0.15 * np.asarray(image, dtype=float)
        Image.fromarray(grey.astype(np.uint8)).save(folder / f"{number:03}.png")
    return root.parent


def sweep_of(faded: Path, kind: str) -> tuple[Any, ...]:
    return ("sweep", "digits-resnet8", "--data", faded, *KINDS[kind], "--batch-size", 16)


def strictly(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def without_times(record: Any) -> Any:
    if isinstance(record, dict):
        return {name: without_times(value) for name, value in record.items() if name not in ("seconds", "checkpoint")}
    return [without_times(value) for value in record] if isinstance(record, list) else record


@pytest.mark.parametrize("kind", KINDS)
def test_confirmed_applied_drawn_and_resumed(faded: Path, kind: str, here: Path) -> None:
    command = (*sweep_of(faded, kind), "--confirm", "--apply", "-o")
    told = strictly(done(*command, "out", "--json").stdout)
    assert strictly((here / "out" / "result.json").read_text("utf-8")) == told
    with_prior, two = "--prior" in KINDS[kind], " and " in kind or kind == "two options"
    assert told["confirming_images"] == 120
    assert (told["estimating_images"], told["choosing_images"]) == ((60, 60) if with_prior else (0, 120))
    assert (told["second_axis"] is not None) == two
    best = max(told["points"], key=lambda point: point["metrics"]["accuracy"])
    chosen = [p for p in told["points"] if (p["value"], p["second"]) == (told["chosen"], told["second_chosen"])]
    assert [p["metrics"]["accuracy"] for p in chosen] == [best["metrics"]["accuracy"]]
    assert told["kept"] == told["best"] != "original"

    page = (here / "out" / "report.html").read_text("utf-8")
    assert ("Heat maps" in page) == two
    assert ("60 to estimate statistics from" in page) == with_prior
    with Image.open(here / "out" / "curves.png") as picture:
        assert picture.width > 900

    confirmed = next(each for each in told["settings"] if each["name"] == told["best"])["confirming"]
    stored = here / "out" / "checkpoint"
    history = strictly((stored / "surgery.json").read_text("utf-8"))["history"]
    values = {told["axis"]: told["chosen"], told["second_axis"]: told["second_chosen"]}
    recalibrated = [step for step in history if step["kind"] == "recalibrated"]
    if with_prior:
        assert [step["prior"] for step in recalibrated] == ([] if values["prior"] == "Infinity" else [values["prior"]])
    else:
        assert not recalibrated
    before, after = (network.state_dict() for network in (open_model("digits-resnet8").model, surgeon.load(stored)))
    same = all(torch.equal(after[name], value) for name, value in before.items() if "running" in name)
    assert same == (not recalibrated)
    assert [step["best"] for step in history if step["kind"] == "swept"][-1] == told["best"]

    # Going on from a journal that lacks its last blocks gives the same, and eval agrees with the whole validation set.
    journal = here / "out" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    (here / "again").mkdir()
    (here / "again" / "journal.jsonl").write_bytes(b"".join(lines[:3]))
    again = strictly(done(*command, "again", "--json").stdout)
    assert without_times(again) == without_times(told)
    resumed = surgeon.load(here / "again" / "checkpoint").state_dict()
    assert all(torch.equal(resumed[name], value) for name, value in after.items())
    whole = document("eval", stored, "--data", faded, "--split", "validation")["metrics"]["accuracy"]
    assert whole == pytest.approx(confirmed["accuracy"], abs=0.12)
    assert done("verify", stored).code == 0


@pytest.mark.parametrize("kind", ["prior", "alpha and prior"])
def test_a_race_gives_a_whole_result(faded: Path, kind: str) -> None:
    command = (*sweep_of(faded, kind), "--metric", "cross-entropy", "--split", "validation")
    race, grid = document(*command, "--method", "race"), document(*command, "--method", "grid")
    assert (race["method"], grid["method"]) == ("race", "grid")
    assert len(race["points"]) == len(grid["points"])
    assert race["chosen"] == grid["chosen"]  # too few images for rounds that drop anybody


def test_another_journal_is_refused(faded: Path) -> None:
    done(*sweep_of(faded, "prior"), "-o", "out")
    assert "other settings: values" in refusal(
        "sweep", "digits-resnet8", "--data", faded, "--prior", "0,inf", "--batch-size", 16, "-o", "out"
    )
    assert "re-estimated layers" in refusal(*sweep_of(faded, "prior"), "--layers", "stem", "-o", "out")


def test_only_the_layers_that_were_named_change(faded: Path) -> None:
    names = [layer["name"] for layer in document("inspect", "digits-resnet8")["layers"]]
    done(*sweep_of(faded, "prior"), "--layers", names[0], "--force", "-o", "out")
    before, after = (net.state_dict() for net in (open_model("digits-resnet8").model, surgeon.load("out/checkpoint")))
    moved = {name.rpartition(".")[0] for name, value in before.items() if not torch.equal(after[name], value)}
    assert moved == {names[0]}


def test_images_that_cannot_be_read_are_left_out_and_named(faded: Path, here: Path) -> None:
    folder = here / "some" / "validation"
    for number, file in enumerate(sorted(faded.rglob("*.png"), key=lambda file: file.name)[:120]):
        target = folder / file.parent.name / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"no image" if number % 10 == 0 else file.read_bytes())
    told = document("sweep", "digits-resnet8", "--data", here / "some", *PRIORS, "--skip-bad")
    assert told["estimating_images"] + told["choosing_images"] + told["confirming_images"] == 108
    assert len(told["bad_images"]) == 12


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--prior", "0,16", "--lambda", "0,1"), "--lambda cannot be swept together"),
        (("--prior", "0,nan"), "--prior cannot be nan"),
        (("--prior", "-1,16"), "--prior cannot be -1"),
        (("--prior", "many"), "--prior cannot be 'many'"),
        (("--prior", ""), "--prior cannot be"),
        (("--prior", "0,16", "--per-layer"), "not with --prior"),
        (("--prior", "0,16", "--alpha", "0,1", "--sweep", "instance-aware.k=1"), "2 axes can"),
        (("--prior", "0,16", "--limit", "1"), "cannot be halved"),
        (("--alpha", "0,1", "--sweep", "example-weighted.alpha=0,1"), "alpha is swept twice"),
        (("--alpha", "0:1:101", "--prior", "0:100:101"), "pairs of values, more than 1,001"),
        (("--sweep", "instance-aware.k=-1"), "k=-1"),
    ],
)
def test_refusals(options: tuple[str, ...], words: str, here: Path) -> None:
    told = refusal("sweep", "digits-resnet8", "--data", "digits", *options, "-o", "out")
    assert words in told
    assert not (here / "out" / "result.json").exists()


def test_a_network_without_batch_norm_is_refused() -> None:
    told = refusal("sweep", "convnext_atto", "--no-pretrained", "--data", "digits", "--prior", "0,16")
    assert "no layer whose running statistics" in told or "classes" in told


@pytest.mark.parametrize("written", ["0,inf", "0,Inf", "0, infinity"])
def test_infinity_is_written_as_people_do(written: str) -> None:
    told = document("sweep", "digits-resnet8", "--data", "digits", "--limit", 40, "--prior", written)
    assert [point["value"] for point in told["points"]] == [0, "Infinity"]
