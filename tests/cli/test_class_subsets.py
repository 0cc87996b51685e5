"""Data with some of a network's classes, in an order of their own: matched by name, and said so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

import surgeon
from surgeon.checkpoint import open_model, save_checkpoint
from surgeon.data.digits import digit_pixels, load_digits
from surgeon.layers.surgical import surgical_layers
from tests.cli.running import document, done, refusal

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SOME = (8, 5, 4, 9, 1, 7, 6)  # sorted by name: eight, five, four, nine, one, seven, six
PER_CLASS = 12


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled network with names for its classes."""
    loaded = open_model("digits-resnet8")
    loaded.origin = loaded.origin.model_copy(update={"class_names": NAMES})
    return save_checkpoint(loaded, tmp_path_factory.mktemp("named") / "checkpoint")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Test images of seven classes, and validation images of six of them."""
    root = tmp_path_factory.mktemp("some") / "digits"
    for split, classes in (("test", SOME), ("validation", SOME[:-1])):
        pixels, labels = digit_pixels(split)
        for digit in classes:
            for number, place in enumerate(np.flatnonzero(labels == digit)[:PER_CLASS]):
                file = root / split / NAMES[digit] / f"{number:02}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels[place]).save(file)
    return root


def reference(network: Path, split: str, classes: tuple[int, ...]) -> tuple[float, float]:
    """Accuracy and cross-entropy by plain torch, among all ten outputs."""
    inputs, labels = load_digits(split)
    chosen = torch.cat([torch.nonzero(labels == digit)[:PER_CLASS, 0] for digit in classes])
    with torch.inference_mode():
        logits = surgeon.load(network)(inputs[chosen]).double()
    right = (logits.argmax(1) == labels[chosen]).double().mean().item()
    return right, cross_entropy(logits, labels[chosen]).item()


def test_eval_counts_by_name_among_all_outputs(network: Path, images: Path) -> None:
    told = document("eval", network, "--data", images)
    accuracy, entropy = reference(network, "test", SOME)
    assert told["matched_classes"] == [7, 10]
    assert told["metrics"]["images"] == 7 * PER_CLASS
    assert told["metrics"]["accuracy"] == pytest.approx(accuracy)
    assert told["metrics"]["cross_entropy"] == pytest.approx(entropy, rel=1e-5)


def test_a_class_that_one_split_lacks_shifts_no_number(network: Path, images: Path) -> None:
    told = document("eval", network, "--data", images, "--split", "validation")
    accuracy, entropy = reference(network, "validation", SOME[:-1])
    assert told["metrics"]["accuracy"] == pytest.approx(accuracy)
    assert told["metrics"]["cross_entropy"] == pytest.approx(entropy, rel=1e-5)


def test_a_report_names_the_classes_of_both(network: Path, images: Path) -> None:
    said = done("eval", network, "--data", images, "-o", "report")
    assert "7 of 10 classes, matched by name" in said.stderr
    told = document("eval", network, "--data", images, "-o", "again")
    assert [one["name"] for one in told["breakdown"]["classes"]] == [NAMES[digit] for digit in SOME]
    assert {one["predicted"] for one in told["breakdown"]["confusions"]} <= set(NAMES)
    assert "7 of 10 classes, matched by name" in Path("report/report.html").read_text("utf-8")


def test_sweep_robustness_and_recalibrate_do_so_too(network: Path, images: Path) -> None:
    accuracy, entropy = reference(network, "test", SOME)
    swept = document("sweep", network, "--data", images, "--split", "test", "--alpha", "0,0.1")
    assert swept["matched_classes"] == [7, 10]
    assert swept["points"][0]["metrics"]["cross_entropy"] == pytest.approx(entropy, rel=1e-5)
    robust = document("robustness", network, "--data", images, "--under", "fgsm:eps=0")
    assert robust["matched_classes"] == [7, 10]
    source = document("recalibrate", network, "--data", "digits", "--source", images)["source"]
    assert source["matched_classes"] == [7, 10]
    assert source["before"]["accuracy"] == pytest.approx(accuracy)
    confirmed = document("recalibrate", network, "--data", images, "--confirm")["confirmed"]
    assert confirmed["matched_classes"] == [7, 10]
    assert confirmed["before"]["accuracy"] > 0.8


def test_an_attack_climbs_the_loss_of_the_right_class(network: Path, images: Path) -> None:
    """Against numbers taken for classes it would make images that are easier to classify."""
    told = document("eval", network, "--data", images, "--under", "fgsm:eps=0.1")
    assert told["under"][0]["metrics"]["cross_entropy"] > 2 * told["metrics"]["cross_entropy"]
    by_position = document("eval", network, "--data", "digits", "--under", "fgsm:eps=0.1")
    assert told["under"][0]["metrics"]["accuracy"] == pytest.approx(
        by_position["under"][0]["metrics"]["accuracy"], abs=0.15
    )


def test_alphas_are_learned_for_the_right_class(network: Path, images: Path) -> None:
    told = document("sweep", network, "--data", images, "--split", "test", "--alpha", "0,0.1", "--per-layer")
    learned = told["settings"][-1]["choosing"]
    assert learned["accuracy"] > 0.9
    assert len(told["learned"][0]["alphas"]) == len(surgical_layers(surgeon.convert(surgeon.load(network), "ghost")))


def test_a_class_that_the_network_does_not_know_is_named(network: Path, tmp_path: Path) -> None:
    file = tmp_path / "data" / "ten" / "0.png"
    file.parent.mkdir(parents=True)
    Image.new("L", (8, 8)).save(file)
    told = refusal("eval", network, "--data", file.parents[1])
    assert told.startswith("The network has no class 'ten', which 'data' has.")


def test_some_wordnet_numbers_are_classes_of_an_imagenet_network(tmp_path: Path) -> None:
    for number in ("n01440764", "n02123045"):
        (tmp_path / "few" / number).mkdir(parents=True)
        Image.new("RGB", (40, 40), "teal").save(tmp_path / "few" / number / "0.png")
    told = document("eval", "resnet10t", "--no-pretrained", "--data", tmp_path / "few", "--input-size", "64")
    assert told["matched_classes"] == [2, 1000]


def test_classes_taken_by_their_position_are_told(tmp_path: Path) -> None:
    """Folders are in alphabetical order, which need not be that of a network that has no names."""
    for name in NAMES:
        (tmp_path / "digits" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "digits" / name / "0.png")
    (warning,) = document("eval", "digits-resnet8", "--data", tmp_path / "digits")["warnings"]
    assert warning == (
        "The network has no class names: output 0 is taken for 'eight', … 9 for 'zero', in the alphabetical order of "
        "the folders."
    )
    for number, name in enumerate(NAMES):
        (tmp_path / "digits" / name).rename(tmp_path / "digits" / str(number))
    assert document("eval", "digits-resnet8", "--data", tmp_path / "digits")["warnings"] == []
