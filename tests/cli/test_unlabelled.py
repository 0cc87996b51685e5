"""`surgeon finetune --unlabelled`: what is learned from, what is left out, and that no label of it is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surgeon.data.opening import open_data
from tests.cli.running import document, done, invoke, refusal
from tests.cli.test_finetune import same, weights

FEW = ("finetune", "digits-resnet8", "--no-pretrained", "--data", "digits", "--workers", 0, "--batch-size", 10)
FEW = (*FEW, "--set", "train_images=40", "--set", "unlabelled_images=80", "--set", "unlabelled_ratio=2")
FEW = (*FEW, "--epochs", 2, "--set", "sweep=null", "--augment", "standard:flip=false", "--lr", 0.05)
SAME = (*FEW, "--unlabelled", "same", "--loss", "pseudo-label:threshold=0.3")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    done(*SAME, "-o", folder)
    return folder


def test_what_a_run_tells(uninterrupted: Path) -> None:
    result = json.loads((uninterrupted / "result.json").read_text("utf-8"))
    assert (result["unlabelled"], result["unlabelled_images"], result["train_images"]) == ("same", 80, 40)
    for epoch in result["epochs"]:
        assert 0 < epoch["shares"]["confident pseudo-labels"] <= 1
        assert len(epoch["head_rates"]) == 4
    assert "80 unlabelled images, 2 with each labelled one." in result["settings"]
    page = (uninterrupted / "report.html").read_text("utf-8")
    assert "confident pseudo-labels" in page
    assert "80 unlabelled (same)" in page
    card = (uninterrupted / "checkpoint" / "README.md").read_text("utf-8")
    assert "Fine-tuned on digits: 40 images, and 80 images of digits, split train, without labels." in card.replace(
        "\n", " "
    )


def test_a_stopped_run_ends_with_the_same_weights(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surgeon.training import loop

    take = loop.Trainer._take_step

    def fail(trainer: Any, *arguments: Any) -> Any:
        if trainer.step == 5:
            raise OSError("the power is gone")
        return take(trainer, *arguments)

    monkeypatch.setattr(loop, "SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr(loop.Trainer, "_take_step", fail)
    assert invoke(*SAME, "-o", tmp_path / "broken").code == 1
    monkeypatch.undo()
    again = done(*SAME, "-o", tmp_path / "broken", "--resume")
    assert "confident pseudo-labels" in again.stderr
    assert same(weights(tmp_path / "broken"), weights(uninterrupted))
    shares = [
        [epoch["shares"] for epoch in json.loads((run / "result.json").read_text("utf-8"))["epochs"]]
        for run in (tmp_path / "broken", uninterrupted)
    ]
    assert shares[0] == shares[1]
    others = (*FEW, "--loss", "pseudo-label:threshold=0.3", "--unlabelled", "digits", "--set", "unlabelled_images=70")
    assert "other settings: unlabelled_images" in refusal(*others, "-o", uninterrupted, "--resume")


def folder_of(root: Path, split: str, numbers: range, name: str) -> Path:
    """Digits as files, in folders that may lie about what they show."""
    images = open_data("digits", split)
    for number in numbers:
        place = root / (name or str(number % 7))
        place.mkdir(parents=True, exist_ok=True)
        images.image(number).save(place / f"{number:04}.png")
    return root


def test_labels_of_unlabelled_images_are_not_looked_at(tmp_path: Path) -> None:
    """The same images in the same order, in folders of other names; a folder's own name is part of its fingerprint."""
    runs = []
    for name in ("a", "b"):
        folder = folder_of(tmp_path / name / "images", "train", range(0, 300, 3), name)
        runs.append(tmp_path / f"run-{name}")
        given = ("--unlabelled", folder, "--set", "unlabelled_images=null", "--loss", "pseudo-label:threshold=0.3")
        done(*FEW, "--epochs", 1, *given, "-o", runs[-1])
    assert same(*map(weights, runs))


def test_images_that_judge_the_network_are_left_out(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "unlabelled", "train", range(60), "")
    data = tmp_path / "data"
    for split, numbers in (("train", range(100, 200)), ("validation", range(30)), ("test", range(30, 40))):
        images = open_data("digits", "train")
        for number in numbers:
            place = data / split / str(images.labels[number])
            place.mkdir(parents=True, exist_ok=True)
            images.image(number).save(place / f"{number:04}.png")
    given = [str(word).replace("digits", str(data)) if word == "digits" else word for word in FEW]
    run = (*given, "--set", "train_images=null", "--set", "unlabelled_images=null", "--unlabelled", folder)
    result = document(*run, "--epochs", 1, "-o", tmp_path / "run")
    assert (result["unlabelled_images"], result["unlabelled_left_out"]) == (20, 40)
    sentence = "40 unlabelled images left out: validation or test images, byte for byte."
    assert any(sentence in said for said in result["settings"])
    told = refusal(*given, "--unlabelled", data / "validation", "-o", tmp_path / "other")
    assert told.startswith("All of the 30 unlabelled images are validation or test images.")


def test_a_dry_run_says_what_would_be_done(tmp_path: Path) -> None:
    planned = done(*FEW, "--unlabelled", "same", "--dry-run", "-o", tmp_path / "run")
    assert "80 unlabelled images, 2 with each labelled one." in planned.stderr.replace("\n", " ")
    assert "- pseudo-label\n" in planned.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--loss", "pseudo-label"], "The loss pseudo-label needs images without labels. Pass --unlabelled DATA"),
        (["--unlabelled", "same", "--batch-size", 40, "--set", "unlabelled_ratio=3"], "goes with 120 unlabelled ones"),
        (["--unlabelled", "nowhere"], "There is no data 'nowhere'"),
        (["--unlabelled", "same", "--loss", "pseudo-label:threshold=1.5"], "threshold"),
    ],
)
def test_what_cannot_be_learned_from_is_told(options: list[object], told: str, tmp_path: Path) -> None:
    assert told in refusal(*FEW, *options, "-o", tmp_path / "run").replace("\n", " ")
    assert not (tmp_path / "run").exists()
