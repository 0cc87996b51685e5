"""`surgeon predict`: the top classes of image files, in order, as the checkpoint predicts them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import surgeon
from surgeon.checkpoint import open_model, save_checkpoint
from surgeon.data.digits import digit_pixels, load_digits
from surgeon.results import Prediction
from surgeon.surgery.temperature import set_temperature
from tests.cli.running import command, document, done, invoke, refusal

NETWORK = "digits-resnet8"
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@pytest.fixture
def pictures(here: Path) -> list[str]:
    """Nine digits as files, in no alphabetical order."""
    pixels, _ = digit_pixels("test")
    names = [f"{(7 * number) % 9}.png" for number in range(9)]
    for name, image in zip(names, pixels, strict=False):
        Image.fromarray(image).save(here / name)
    return names


def probabilities(model: torch.nn.Module, count: int = 9) -> torch.Tensor:
    """By plain torch, in float64."""
    images, _ = load_digits("test")
    with torch.inference_mode():
        return model(images[:count]).double().softmax(1)


def test_the_top_classes_are_those_of_plain_torch_in_the_order_given(pictures: list[str]) -> None:
    told = document("predict", NETWORK, *pictures, "--top", "3", "--batch-size", "4")
    expected, places = probabilities(open_model(NETWORK).model).topk(3)
    assert [image["image"] for image in told["images"]] == pictures
    assert [[one["output"] for one in image["classes"]] for image in told["images"]] == places.tolist()
    found = [[one["probability"] for one in image["classes"]] for image in told["images"]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert Prediction.model_validate(told).class_names_from == "numbers"


def test_alpha_temperature_branches_and_names_are_those_of_the_checkpoint(pictures: list[str], here: Path) -> None:
    loaded = open_model(NETWORK)
    loaded.model = surgeon.convert(loaded.model, "example-weighted", alpha=0.3)
    set_temperature(loaded.model, 2.5)
    loaded.origin = loaded.origin.model_copy(update={"class_names": NAMES})
    save_checkpoint(loaded, here / "stored")
    told = document("predict", "stored", *pictures, "--top", "10")
    assert told["temperature"] == 2.5
    assert told["class_names_from"] == "checkpoint"
    expected = probabilities(loaded.model)
    plain = probabilities(open_model(NETWORK).model)
    for image, row in zip(told["images"], expected, strict=True):
        assert [one["name"] for one in image["classes"]] == [NAMES[one["output"]] for one in image["classes"]]
        for one in image["classes"]:
            assert one["probability"] == pytest.approx(row[one["output"]].item(), rel=1e-5)
    assert (expected - plain).abs().max() > 0.05


def test_the_stored_mix_of_branches_predicts(pictures: list[str]) -> None:
    done("convert", NETWORK, "--bn", "split", "-o", "split")
    split = surgeon.load("split")
    with torch.no_grad():
        for name, parameter in split.named_parameters():
            if "aux" in name:
                parameter.mul_(1.7)
    surgeon.mix_branches(split, 0.4)
    surgeon.save(split, "mixed")
    told = document("predict", "mixed", *pictures, "--top", "1")
    assert told["prediction_by"]
    expected, _ = probabilities(surgeon.load("mixed")).max(1)
    found = [image["classes"][0]["probability"] for image in told["images"]]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_views_are_averaged(pictures: list[str]) -> None:
    told = document("predict", NETWORK, pictures[0], "--tta", "flip", "--top", "10")
    images, _ = load_digits("test")
    model = open_model(NETWORK).model
    with torch.inference_mode():
        both = (model(images[:1]).double() + model(images[:1].flip(3)).double()) / 2
    expected = both.softmax(1)[0]
    assert told["views"] == 2
    for one in told["images"][0]["classes"]:
        assert one["probability"] == pytest.approx(expected[one["output"]].item(), rel=1e-4)


def test_folders_and_a_list_on_stdin(pictures: list[str], here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "below" / "deep").mkdir(parents=True)
    for name in pictures[:2]:
        (here / name).rename(here / "below" / "deep" / name)
    told = document("predict", NETWORK, pictures[2], "below", "--top", "1")
    assert [image["image"] for image in told["images"]] == [pictures[2], "below/deep/0.png", "below/deep/7.png"]
    (here / "list.txt").write_text(f"{pictures[3]}\n\nbelow/deep/7.png\n")
    with (here / "list.txt").open() as stdin:
        monkeypatch.setattr("surgeon.cli.predict.sys", type("Sys", (), {"stdin": stdin}))
        told = document("predict", NETWORK, "-", pictures[4], "--top", "1")
    assert [image["image"] for image in told["images"]] == [pictures[3], "below/deep/7.png", pictures[4]]


def test_a_table_for_people_and_one_for_programs(pictures: list[str], here: Path) -> None:
    said = done("predict", NETWORK, *pictures[:2], "--top", "2", "--csv", "out.csv")
    assert said.stdout.count("%") == 4
    assert "numbers of outputs" in said.stderr
    rows = list(csv.DictReader((here / "out.csv").open(encoding="utf-8")))
    assert [(row["image"], row["rank"]) for row in rows] == [(name, rank) for name in pictures[:2] for rank in "12"]
    assert "already exists" in refusal("predict", NETWORK, pictures[0], "--csv", "out.csv")
    done("predict", NETWORK, pictures[0], "--csv", "out.csv", "--overwrite")


def test_unreadable_images(pictures: list[str], here: Path) -> None:
    (here / "bad.png").write_text("no image")
    assert refusal("predict", NETWORK, pictures[0], "bad.png").startswith("The image bad.png cannot be read")
    assert "no image file or folder 'gone.png'" in refusal("predict", NETWORK, "gone.png")
    told = document("predict", NETWORK, "bad.png", pictures[0], "gone.png", "--skip-bad")
    assert [image["image"] for image in told["images"]] == [pictures[0]]
    assert [sentence.partition(" cannot")[0] for sentence in told["bad_images"]] == [
        "The image bad.png",
        "The image gone.png",
    ]
    said = done("predict", NETWORK, "bad.png", pictures[0], "gone.png", "--skip-bad").stderr
    assert "note: The image gone.png cannot be read: No such file or directory." in said
    assert "None of the 2 images" in refusal("predict", NETWORK, "bad.png", "gone.png", "--skip-bad", code=1)


def test_a_name_that_is_no_text(pictures: list[str], here: Path) -> None:
    (here / pictures[0]).rename(os.fsdecode(b"caf\xe9.png"))
    (here / "list").write_bytes(b"caf\xe9.png\n")
    finished = subprocess.run(
        command("predict", NETWORK, "-", "--json", "--csv", "out.csv"),
        stdin=(here / "list").open(),
        capture_output=True,
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["images"][0]["image"] == "caf\\udce9.png"


def test_refusals(here: Path) -> None:
    (here / "empty").mkdir()
    assert "The folder 'empty' holds no images" in refusal("predict", NETWORK, "empty")
    assert "only once" in refusal("predict", NETWORK, "-", "-")
    assert invoke("predict", NETWORK).code == 2
    assert invoke("predict", NETWORK, "empty", "--top", "0").code == 2


def test_logits_that_are_not_numbers_are_told(pictures: list[str], here: Path) -> None:
    loaded = open_model(NETWORK)
    next(iter(loaded.model.parameters())).data.fill_(float("nan"))
    with torch.no_grad():
        save_checkpoint(loaded, here / "broken")
    told = document("predict", "broken", pictures[0])
    assert told["images"][0]["classes"] == []
    assert "The logits of 1 image are NaN" in done("predict", "broken", pictures[0]).stderr


def test_imagenet_names_and_those_of_python(pictures: list[str], here: Path) -> None:
    Image.new("RGB", (70, 50), "teal").save(here / "teal.jpg")
    told = document("predict", "resnet10t", "--no-pretrained", "teal.jpg", "--input-size", "64", "--top", "1000")
    assert told["class_names_from"] == "imagenet-1k"
    assert {one["output"]: one["name"] for one in told["images"][0]["classes"]}[0] == "tench, Tinca tinca"
    model = open_model(NETWORK).model
    layout = [parameter.stride() for parameter in model.parameters()]
    found = surgeon.predict(model, [here / pictures[0], Image.open(pictures[1])], top=2)
    assert [image.image for image in found.images] == [str(here / pictures[0]), "number 1"]
    expected, places = probabilities(model, 2).topk(2)
    assert [[one.output for one in image.classes] for image in found.images] == places.tolist()
    np.testing.assert_allclose([[c.probability for c in i.classes] for i in found.images], expected, rtol=1e-5)
    assert [parameter.stride() for parameter in model.parameters()] == layout


@pytest.mark.parametrize(
    ("images", "told"),
    [
        ([], "no images to predict"),
        ([torch.zeros(1, 8, 8)], "this is of type Tensor"),
        ("nowhere.png", "no image file or folder"),
    ],
)
def test_what_python_cannot_predict_is_told(images: object, told: str) -> None:
    with pytest.raises(surgeon.SurgeonError, match=told):
        surgeon.predict(open_model(NETWORK).model, images)


def test_a_network_whose_images_are_unknown_is_told(pictures: list[str]) -> None:
    with pytest.raises(surgeon.SurgeonError, match="The preprocessing of a Flatten is not known"):
        surgeon.predict(torch.nn.Flatten(), pictures)
