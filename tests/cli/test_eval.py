"""`surgeon eval`: figures that are right, on data of every kind, and errors before any computing."""

from __future__ import annotations

import base64
import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from scipy.optimize import minimize_scalar
from torch.nn.functional import cross_entropy

import surgeon
from surgeon.data.digits import load_digits
from surgeon.data.opening import open_data
from surgeon.data.stratified import halves
from surgeon.metrics import metrics, register
from surgeon.report.wording import label
from tests.cli.running import done, refusal


def evaluation(*arguments: object) -> dict:
    return json.loads(done("eval", *arguments, "--json").stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten classes with four grey pictures each."""
    random = np.random.default_rng(0)
    for name in "abcdefghij":
        for number in range(4):
            path = tmp_path / "images" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(0, 255, (8, 8), dtype=np.uint8)).save(path)
    return tmp_path / "images"


def test_the_bundled_model_has_its_accuracy() -> None:
    told = evaluation("digits-resnet8", "--data", "digits")
    assert told["split"] == "test"
    assert told["metrics"]["images"] == 450
    assert told["metrics"]["accuracy"] == pytest.approx(439 / 450)
    assert told["metrics"]["accuracy_low"] < told["metrics"]["accuracy"] < told["metrics"]["accuracy_high"]


def test_python_gives_the_same_figures_as_plain_torch() -> None:
    model = surgeon.load(Path(surgeon.__file__).parent / "assets" / "digits-resnet8")
    images, labels = load_digits("test")
    metrics = surgeon.evaluate(model, list(zip(images.split(100), labels.split(100), strict=True)))
    with torch.inference_mode():
        logits = model(images)
    assert metrics.accuracy == (logits.argmax(1) == labels).double().mean().item()
    assert metrics.cross_entropy == pytest.approx(cross_entropy(logits.double(), labels).item(), rel=1e-5)
    assert metrics.scaled_cross_entropy <= metrics.cross_entropy


def test_a_table_for_people() -> None:
    outcome = done("eval", "digits-resnet8", "--data", "digits", "--limit", 50)
    assert all(label(name) in outcome.stdout for name in metrics if not metrics[name].only_masks)
    assert "temperature (fitted)" in outcome.stdout
    assert "50 images" in outcome.stderr
    assert "8x8 px" in outcome.stderr


def test_views_are_merged_and_told() -> None:
    plain = evaluation("digits-resnet8", "--data", "digits", "--limit", 60)
    views = evaluation("digits-resnet8", "--data", "digits", "--limit", 60, "--tta", "flip-crop")
    assert (plain["views"], views["views"]) == (1, 10)
    assert plain["metrics"]["cross_entropy"] != views["metrics"]["cross_entropy"]


def test_logits_are_saved(tmp_path: Path) -> None:
    told = evaluation("digits-resnet8", "--data", "digits", "--limit", 40, "--save-logits", tmp_path / "l.safetensors")
    saved = load_file(tmp_path / "l.safetensors")
    right = (saved["logits"].argmax(1) == saved["labels"]).double().mean().item()
    assert saved["logits"].shape == (40, 10)
    assert told["metrics"]["accuracy"] == pytest.approx(right)
    assert not list(tmp_path.glob(".unfinished*"))
    (tmp_path / "other").touch()
    assert (tmp_path / "l.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_features_are_saved_beside_the_logits(tmp_path: Path) -> None:
    """In one view, also where the logits are of several."""
    file = tmp_path / "l.safetensors"
    views = ("--data", "digits", "--limit", 40, "--tta", "flip", "--save-logits", file)
    told = evaluation("digits-resnet8", *views, "--save-features")
    saved = load_file(file)
    head = load_file(Path(surgeon.__file__).parent / "assets/digits-resnet8/model.safetensors")
    name = next(name.removesuffix(".weight") for name, one in head.items() if one.dim() == 2)
    logits = saved["features"] @ head[f"{name}.weight"].T + head[f"{name}.bias"]
    plain = (logits.argmax(1) == saved["labels"]).double().mean().item()
    assert told["against_one_view"]["metrics"]["accuracy"] == pytest.approx(plain)
    assert "pass --save-logits too" in refusal("eval", "digits-resnet8", "--data", "digits", "--save-features")


def test_a_metric_that_fails_is_named() -> None:
    @register("broken", higher_is_better=True)
    def broken(images: Any) -> float:  # noqa: ARG001
        """Somebody else's."""
        return 1 / 0

    try:
        said = refusal("eval", "digits-resnet8", "--data", "digits", "--limit", 20, code=1)
    finally:
        metrics.forget("broken")
    assert said.startswith("The metric 'broken' cannot be computed: ZeroDivisionError: division by zero. If a package")


def test_a_report(tmp_path: Path) -> None:
    outcome = done("eval", "digits-resnet8", "--data", "digits", "-o", tmp_path / "run", "--json")
    told = json.loads(outcome.stdout)
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        "evaluation.png",
        "report.html",
        "result.json",
    ]
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == told
    behind, figures = told["breakdown"], told["metrics"]
    assert sum(one["images"] for one in behind["classes"]) == sum(one["images"] for one in behind["bins"]) == 450
    assert sum(one["correct"] for one in behind["classes"]) == pytest.approx(450 * figures["accuracy"])
    gaps = (one["images"] * abs(one["confidence"] - one["accuracy"]) for one in behind["bins"])
    assert sum(gaps) / 450 == pytest.approx(figures["ece"])
    assert len(behind["mistakes"]) == sum(one["images"] for one in behind["confusions"]) == 11
    assert "already exists" in refusal("eval", "digits-resnet8", "--data", "digits", "-o", tmp_path / "run")


def test_the_page_shows_the_images_of_the_surest_mistakes(tmp_path: Path) -> None:
    """The pixels of the data set, in the order of the table: eleven digits are classified wrongly."""
    done("eval", "digits-resnet8", "--data", "digits", "-o", tmp_path / "run")
    mistakes = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))["breakdown"]["mistakes"]
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    shown = re.findall(r'<img alt="([^"]*)"[^>]* src="data:image/png;base64,([^"]*)"', page)
    assert [name for name, _ in shown] == [one["image"] for one in mistakes]
    assert len(shown) == 11
    digits = open_data("digits", "test")
    for name, encoded in shown:
        index = next(index for index in range(len(digits)) if digits.identity(index) == name)
        drawn = np.asarray(Image.open(BytesIO(base64.b64decode(encoded))).convert("L"), dtype=int)
        assert np.abs(drawn - np.asarray(digits.image(index).convert("L"), dtype=int)).max() <= 2


def test_without_a_report_the_record_is_short() -> None:
    assert evaluation("digits-resnet8", "--data", "digits", "--limit", 20)["breakdown"] is None


def test_a_checkpoint_with_the_temperature_is_in_the_run_folder(tmp_path: Path) -> None:
    told = evaluation("digits-resnet8", "--data", "digits", "--temperature", "-o", tmp_path / "run")
    assert told["checkpoint"] == str(tmp_path / "run" / "checkpoint")
    assert told["split"] == "validation", "not what the test images are measured with afterwards"
    assert "is stored: its gain in cross-entropy is significant" in told["decision"]
    again = evaluation(told["checkpoint"], "--data", "digits", "--split", "validation")["metrics"]
    assert again["cross_entropy"] == pytest.approx(told["metrics"]["scaled_cross_entropy"], rel=1e-5)
    assert again["temperature"] == pytest.approx(1, abs=1e-3)


def test_a_temperature_is_fitted_on_test_images_only_with_a_warning(tmp_path: Path) -> None:
    arguments = (
        "--data",
        "digits",
        "--split",
        "test",
        "--limit",
        60,
        "--temperature",
        "--force",
        "-o",
        tmp_path / "run",
    )
    (warning,) = evaluation("digits-resnet8", *arguments)["warnings"]
    assert "Settings are chosen on test images" in warning
    assert warning in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert warning in done("eval", "digits-resnet8", *arguments, "--overwrite").stderr
    assert evaluation("digits-resnet8", "--data", "digits", "--split", "test", "--limit", 60)["warnings"] == []


def test_a_temperature_is_judged_on_the_half_that_was_held_back(folder: Path, tmp_path: Path) -> None:
    """Against the formula: fitted on one half of the images, its gain is that of the other half."""
    told = evaluation("digits-resnet8", "--data", folder, "--temperature", "-o", tmp_path / "run")
    assert "chosen on half of its images, and the other half is held out" in told["warnings"][0]
    evaluation("digits-resnet8", "--data", folder, "--save-logits", tmp_path / "logits.safetensors")
    saved = load_file(tmp_path / "logits.safetensors")
    logits, labels = saved["logits"].double(), saved["labels"]
    chosen, others = (torch.from_numpy(half) for half in halves(labels.numpy()))

    def entropy(images: torch.Tensor, temperature: float) -> float:
        return float(cross_entropy(logits[images] / temperature, labels[images]))

    best = minimize_scalar(lambda t: entropy(chosen, t), bounds=(0.2, 50), method="bounded").x
    assert told["metrics"]["images"] == told["temperature_gain"]["images"] == 20
    assert told["metrics"]["cross_entropy"] == pytest.approx(entropy(chosen, 1), rel=1e-5)
    expected = entropy(others, best) - entropy(others, 1)
    assert told["temperature_gain"]["difference"] == pytest.approx(expected, rel=1e-3)


def test_a_temperature_within_noise_is_not_stored(tmp_path: Path) -> None:
    few = ("--data", "digits", "--limit", 12, "--temperature", "-o", tmp_path / "run")
    told = evaluation("digits-resnet8", *few)
    assert "is not stored" in told["decision"]
    again = evaluation(told["checkpoint"], "--data", "digits", "--limit", 12, "--split", "validation")
    assert again["metrics"] == told["metrics"]
    assert evaluation("digits-resnet8", *few, "--force", "--overwrite")["metrics"] == told["metrics"]
    again = evaluation(told["checkpoint"], "--data", "digits", "--limit", 12, "--split", "validation")
    assert again["metrics"]["cross_entropy"] == pytest.approx(told["metrics"]["scaled_cross_entropy"], rel=1e-5)


def test_a_folder_of_images(folder: Path) -> None:
    assert evaluation("digits-resnet8", "--data", folder)["metrics"]["images"] == 40


def test_bad_images_are_named_and_can_be_skipped(folder: Path) -> None:
    (folder / "c" / "1.png").write_bytes(b"not a picture")
    assert "1.png" in refusal("eval", "digits-resnet8", "--data", folder)
    told = evaluation("digits-resnet8", "--data", folder, "--skip-bad")
    assert told["metrics"]["images"] == 39
    assert "1.png" in told["bad_images"][0]


def test_half_precision_on_a_cpu_is_no_crash() -> None:
    told = evaluation("digits-resnet8", "--data", "digits", "--limit", 20, "--precision", "bfloat16", "--device", "cpu")
    assert told["precision"] == "float32"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--data", "no/such/folder"], "no/such/folder"),
        (["--data", "digits", "--split", "tset"], "test"),
        (["--data", "digits", "--tta", "flip-corp"], "flip-crop"),
        (["--data", "digits", "--merge", "sum"], "geometric"),
        (["--data", "digits", "--precision", "int8"], "float32"),
        (["--data", "digits", "--device", "tpu"], "cpu"),
        (["--data", "digits", "--temperature"], "Pass one with -o DIR"),
        (["--data", "digits", "--force"], "pass --temperature too"),
    ],
)
def test_refusals(arguments: list[str], expected: str) -> None:
    assert expected in refusal("eval", "digits-resnet8", *arguments)


def test_classes_that_do_not_fit_are_told_before_computing() -> None:
    said = refusal("eval", "digits-resnet8", "--no-pretrained", "--num-classes", 7, "--data", "digits")
    assert "7 outputs" in said
