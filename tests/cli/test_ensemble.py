"""`surgeon ensemble`: figures that are those of the members, images that are kept apart, and clear refusals."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import surgeon
from surgeon.commands.ensemble import operation
from surgeon.data.digits import load_digits
from surgeon.data.stratified import halves
from surgeon.results import Ensemble
from tests.cli.running import contents, document, done, invoke, refusal

DIGITS = ("--data", "digits")
BUNDLED = Path(surgeon.__file__).parent / "assets" / "digits-resnet8"


def perturbed(seed: int, amount: float = 0.25) -> torch.nn.Module:
    """The bundled network with noise on its weights."""
    model = copy.deepcopy(surgeon.load(BUNDLED))
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += amount * parameter.data.std() * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [surgeon.save(perturbed(seed), folder / f"m{seed}") for seed in range(3)]


def logits_of(member: Path, split: str = "test") -> torch.Tensor:
    model = surgeon.load(member)
    with torch.inference_mode():
        return model(load_digits(split)[0])


def test_members_and_average_have_the_figures_of_plain_torch(members: list[Path]) -> None:
    told = document("ensemble", *members, *DIGITS)
    labels = load_digits("test")[1]
    logits = [logits_of(member) for member in members]
    for member, own in zip(told["members"], logits, strict=True):
        assert member["metrics"]["accuracy"] == (own.argmax(1) == labels).double().mean().item()
    (combination,) = told["combinations"]
    mean = torch.stack(logits).mean(0).argmax(1)
    assert combination["metrics"]["accuracy"] == (mean == labels).double().mean().item()
    first, second = logits[0].argmax(1), logits[1].argmax(1)
    assert told["disagreement"][0][1] == (first != second).double().mean().item() > 0
    best = max(member["metrics"]["accuracy"] for member in told["members"])
    gain = combination["over_best"][0]
    assert gain["difference"] == pytest.approx(combination["metrics"]["accuracy"] - best)
    mean_accuracy = np.mean([member["metrics"]["accuracy"] for member in told["members"]])
    assert combination["over_mean"][0]["difference"] == pytest.approx(
        combination["metrics"]["accuracy"] - mean_accuracy
    )


def test_probabilities_are_averaged_where_asked(members: list[Path]) -> None:
    told = document("ensemble", *members, *DIGITS, "--merge", "probabilities")
    mean = torch.stack([logits_of(member).double().softmax(1) for member in members]).mean(0)
    expected = torch.nn.functional.nll_loss(mean.log(), load_digits("test")[1]).item()
    assert told["combinations"][0]["metrics"]["cross_entropy"] == pytest.approx(expected, rel=1e-5)


def test_alpha_and_views_are_those_of_eval(members: list[Path]) -> None:
    """Also with a member that takes its images in another way, of which each batch is then decoded twice."""
    done("convert", members[1], "--bn", "example-weighted:alpha=0.3", "-o", "weighted")
    other = surgeon.load(members[2])
    preprocessing = other.origin.preprocessing.model_copy(update={"mean": (0.3,), "std": (0.6,)})
    surgeon.save(other, "other", origin=other.origin.model_copy(update={"preprocessing": preprocessing}))
    together = ("weighted", "other", str(members[0]))
    views = (*DIGITS, "--tta", "crop")
    told = document("ensemble", *together, *views)
    for name, member in zip(together, told["members"], strict=True):
        alone = document("eval", name, *views, "--save-logits", f"{Path(name).name}.safetensors")
        assert member["metrics"] == alone["metrics"]
    files = [load_file(f"{Path(name).name}.safetensors") for name in together]
    mean = torch.stack([file["logits"] for file in files]).mean(0)
    accuracy = (mean.argmax(1) == files[0]["labels"]).double().mean().item()
    assert told["combinations"][0]["metrics"]["accuracy"] == accuracy
    assert told["views"] > 1


def test_a_table_for_people(members: list[Path]) -> None:
    outcome = done("ensemble", *members, *DIGITS, "--limit", 100)
    assert "m0" in outcome.stdout
    assert "Disagreement" in outcome.stdout
    assert str(members[0].parent) not in outcome.stdout, "names without what they have in common"
    assert "The average of 3 members" in outcome.stderr


# Choice -----------------------------------------------------------------------------------------


def test_greedy_chooses_on_validation_and_reports_on_test(members: list[Path], here: Path) -> None:
    broken = surgeon.save(perturbed(9, 5.0), here / "broken")
    told = document("ensemble", *members, broken, *DIGITS, "--greedy", "--metric", "cross-entropy")
    assert (told["choice"]["split"], told["choice"]["half"], told["split"]) == ("validation", False, "test")
    assert told["choice"]["images"] == len(load_digits("validation")[1])
    everyone, greedy = told["combinations"]
    assert len(everyone["members"]) == 4
    assert str(broken) not in greedy["members"]
    assert greedy["passes"] == len(greedy["members"])
    best = told["choice"]["steps"][0]
    on_validation = torch.nn.functional.cross_entropy(
        logits_of(Path(best["member"]), "validation"), load_digits("validation")[1]
    )
    assert best["value"] == pytest.approx(on_validation.item(), rel=1e-4)
    own = torch.stack([logits_of(Path(name)) for name in greedy["members"]]).mean(0)
    labels = load_digits("test")[1]
    assert greedy["metrics"]["accuracy"] == (own.argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize("options", [("--split", "validation"), ("--choose-split", "test")], ids=["default", "given"])
def test_greedy_never_reports_on_the_images_it_chose_on(
    members: list[Path], options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where both splits are the same, one half chooses and the other reports."""
    used: list[Any] = []
    measure = operation.measure

    def spy(variants: Any, samples: Any, *rest: Any, **options: Any) -> Any:
        used.append(samples.image_set.positions)
        return measure(variants, samples, *rest, **options)

    monkeypatch.setattr(operation, "measure", spy)
    told = document("ensemble", *members, *DIGITS, *options, "--greedy")
    on_test = "test" in options and "--choose-split" in options
    assert [warning for warning in told["warnings"] if "chosen on half of the test images" in warning] == told[
        "warnings"
    ]
    assert bool(told["warnings"]) == on_test
    assert told["choice"]["half"]
    labels = load_digits(told["split"])[1].numpy()
    choosing, reporting = halves(labels)
    to_choose, to_report = used
    assert np.array_equal(to_choose, choosing)
    assert np.array_equal(to_report, reporting)
    assert not np.intersect1d(to_choose, to_report).size
    assert told["members"][0]["metrics"]["images"] == len(reporting)
    assert told["choice"]["images"] == len(choosing)


# Soup -------------------------------------------------------------------------------------------


def test_members_may_be_called_like_what_is_made_of_them(members: list[Path], tmp_path: Path) -> None:
    for name, member in zip(("soup", "ensemble"), members, strict=False):
        shutil.copytree(member, tmp_path / name)
    named = document("ensemble", tmp_path / "soup", tmp_path / "ensemble", *DIGITS, "--limit", 60, "--soup")
    told = document("ensemble", *members[:2], *DIGITS, "--limit", 60, "--soup")
    for ours, theirs in zip(named["combinations"], told["combinations"], strict=True):
        assert (ours["name"], ours["metrics"]) == (theirs["name"], theirs["metrics"])


def test_the_soup_is_a_checkpoint_with_the_reported_figures(members: list[Path]) -> None:
    told = document("ensemble", *members, *DIGITS, "--soup", "--statistics-images", 500, "-o", "out")
    soup = told["combinations"][-1]
    assert (soup["name"], soup["passes"]) == ("soup", 1)
    assert told["statistics"] == {"split": "train", "images": 500, "layers": 7, "averaged_layers": []}
    assert told["checkpoint"] == "out/checkpoint"
    done("verify", "out/checkpoint")
    assert document("eval", "out/checkpoint", *DIGITS)["metrics"] == soup["metrics"]
    states = [load_file(member / "model.safetensors") for member in members]
    weights = load_file("out/checkpoint/model.safetensors")
    moved = 0
    for name, tensor in weights.items():
        mean = torch.stack([state[name].double() for state in states]).mean(0)
        if "running" in name:
            moved += not torch.allclose(tensor.double(), mean, rtol=1e-3)
        else:
            torch.testing.assert_close(tensor.double(), mean, rtol=1e-5, atol=1e-6)
    assert moved > 0, "statistics are those of images, not averages"
    card = Path("out/checkpoint/README.md").read_text("utf-8")
    assert f"The weights are the mean of {len(members)} networks: " in card
    assert f"accuracy {soup['metrics']['accuracy']:.2%} on " in card


def test_the_soup_is_of_the_chosen_members(members: list[Path], here: Path) -> None:
    broken = surgeon.save(perturbed(9, 5.0), here / "broken")
    told = document("ensemble", broken, *members, *DIGITS, "--greedy", "--soup", "--metric", "cross-entropy")
    _, greedy, soup = told["combinations"]
    assert soup["members"] == greedy["members"]
    assert str(broken) not in soup["members"]


def test_a_soup_of_unlike_networks_is_refused(members: list[Path]) -> None:
    done("convert", members[1], "--bn", "example-weighted:alpha=0.3", "-o", "weighted")
    said = refusal("ensemble", members[0], "weighted", *DIGITS, "--soup")
    assert "cannot be averaged: the rewrites are ghost:size=4 in one" in said
    assert "--soup" in said


def test_a_soup_needs_images_for_its_statistics(members: list[Path], here: Path) -> None:
    for name in "abcdefghij":
        (here / "images" / "test" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(here / "images" / "test" / name / "1.png")
    said = refusal("ensemble", *members, "--data", "images", "--soup")
    assert "There is no split 'train'" in said
    assert "--statistics-split" in said
    said = refusal("ensemble", *members, "--data", "images/test", "--soup")
    assert "Put training images into train/, or pass --statistics-split all." in said
    told = document("ensemble", *members, "--data", "images/test", "--soup", "--statistics-split", "all")
    assert "split 'all': if members were trained on them, every figure here is too good" in told["summary"][-1]


# The report -------------------------------------------------------------------------------------


def test_the_report(members: list[Path]) -> None:
    told = document("ensemble", *members, *DIGITS, "--greedy", "-o", "out")
    assert sorted(contents(Path("out"))) == ["ensemble.png", "report.html", "result.json"]
    assert json.loads(Path("out/result.json").read_text("utf-8")) == told
    assert Ensemble.model_validate_json(Path("out/result.json").read_text("utf-8")).model_dump(mode="json") == told
    page = Path("out/report.html").read_text("utf-8")
    for row in (*told["members"], *told["combinations"]):
        assert f'data-value="{row["metrics"]["accuracy"]!r}"' in page
    assert f'data-value="{told["disagreement"][0][2]!r}"' in page
    with Image.open("out/ensemble.png") as picture:
        assert picture.width > 1000
    assert "already exists" in refusal("ensemble", *members, *DIGITS, "-o", "out")
    done("ensemble", *members, *DIGITS, "-o", "out", "--overwrite")


# Refusals ---------------------------------------------------------------------------------------


def test_members_that_are_none(members: list[Path], here: Path) -> None:
    (here / "empty").mkdir()
    (here / "notes.txt").write_text("")
    first = str(members[0])
    for arguments, expected in (
        ([first], "needs two or more"),
        ([first, "runs/none/*"], "No folder matches 'runs/none/*'"),
        ([first, "empty"], "neither a surgeon checkpoint"),
        ([first, "notes.txt"], "is a file"),
        ([first, "./nowhere"], "There is no folder"),
        ([first, str(members[1]), f"{first}/../m0"], "is the same checkpoint as"),
        ([first, "cifar-resnet20"], "Pass a checkpoint folder"),
    ):
        assert expected in refusal("ensemble", *arguments, *DIGITS)
    assert sorted(path.name for path in here.iterdir()) == ["empty", "notes.txt"]


def test_other_numbers_of_classes(members: list[Path]) -> None:
    done("convert", "cifar-resnet20", "--no-pretrained", "--num-classes", 7, "--bn", "ghost:size=4", "-o", "seven")
    said = refusal("ensemble", members[0], "seven", *DIGITS)
    assert "has 10 outputs, but seven has 7" in said


def test_other_class_names(members: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from surgeon import checkpoint

    opened, names = checkpoint.open_model, iter((["zero", "one", "two"], ["zero", "two", "one"]))

    def named(name: str):
        loaded = opened(name)
        loaded.model.pretrained_cfg = {"label_names": next(names)}
        return loaded

    monkeypatch.setattr(checkpoint, "open_model", named)
    assert "Class 1 is 'one' for" in refusal("ensemble", *members[:2], *DIGITS)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--metric", "acuracy"), "accuracy"),
        (("--merge", "votes"), "--merge cannot be 'votes'"),
        (("--choose-split", "validation"), "--greedy"),
        (("--greedy", "--choose-split", "nonsense"), "--choose-split with one of"),
        (("--split", "nonsense"), "There is no split 'nonsense'"),
        (("--tta", "nonsense"), "nonsense"),
    ],
)
def test_options_that_make_no_sense(members: list[Path], options: tuple[str, ...], expected: str) -> None:
    assert expected in refusal("ensemble", *members, *DIGITS, *options)


def test_an_unreadable_image(members: list[Path], here: Path) -> None:
    random = np.random.default_rng(0)
    for name in "abcdefghij":
        (here / "images" / name).mkdir(parents=True)
        for number in range(3):
            pixels = random.integers(0, 255, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(here / "images" / name / f"{number}.png")
    (here / "images" / "c" / "1.png").write_bytes(b"nothing")
    assert "1.png" in refusal("ensemble", *members, "--data", "images")
    assert not torch.is_inference_mode_enabled()
    told = document("ensemble", *members, "--data", "images", "--skip-bad")
    assert told["members"][0]["metrics"]["images"] == 29
    assert len(told["bad_images"]) == 1


def test_help_names_the_command() -> None:
    assert "ensemble" in invoke("--help").stdout
