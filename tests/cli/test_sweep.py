"""`surgeon sweep`: the right choice, told in numbers that other commands confirm, and files that say the same."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import surgeon
from surgeon.cli.sweep import describe
from surgeon.data.digits import digit_pixels
from surgeon.metrics import metrics
from surgeon.results import Sweep
from tests.cli.running import contents, document, done, operations, refusal
from tests.unit.sweep_record import sweep as made_by_hand

DIGITS = ("digits-resnet8", "--data", "digits", "--split", "validation")
SWEEP = ("sweep", *DIGITS, "--alpha", "0:0.8:9", "--metric", "cross-entropy")
QUICK = ("sweep", *DIGITS, "--limit", 60, "--alpha", "0,0.4", "--metric", "cross-entropy", "--batch-size", 16)
FILES = {"result.json", "curves.png", "report.html", "journal.jsonl"}


def without_times(record: Any) -> Any:
    """A result but for how long it took, and for what, everywhere in it."""
    if isinstance(record, dict):
        return {name: without_times(value) for name, value in record.items() if name not in {"seconds", "spent"}}
    return [without_times(value) for value in record] if isinstance(record, list) else record


@cache
def grid() -> dict[str, Any]:
    return document(*SWEEP, "--method", "grid")


def point(record: dict[str, Any], value: float) -> dict[str, Any]:
    (found,) = [each for each in record["points"] if each["value"] == value]
    return found


def setting(record: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [each for each in record["settings"] if each["name"] == name]
    return found


def alike(figures: dict[str, Any], precision: float = 1e-12) -> Any:
    """The same figures but for the last digits, where images were added up in another order."""
    return pytest.approx(figures, rel=precision)


def figures_of(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if name != "others"}


def metrics_of(model: object, *options: object) -> dict[str, Any]:
    return figures_of(document("eval", model, "--data", "digits", "--split", "validation", *options)["metrics"])


# --- what is found


def test_a_grid_measures_every_value_on_every_image() -> None:
    found = grid()
    assert [each["value"] for each in found["points"]] == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    assert {each["metrics"]["images"] for each in found["points"]} == {449}
    assert {each["dropped"] for each in found["points"]} == {None}
    assert found["image_forwards"] == 9 * 449
    best = min(found["points"], key=lambda each: each["metrics"]["cross_entropy"])
    assert found["chosen"] == best["value"] > 0
    assert found["best"] == f"alpha {best['value']}"
    gain = best["gain"]
    original = point(found, 0)["metrics"]["cross_entropy"]
    assert gain["difference"] == pytest.approx(best["metrics"]["cross_entropy"] - original)
    assert gain["low"] < gain["difference"] < gain["high"] < 0


def test_the_figures_at_alpha_0_are_those_of_eval() -> None:
    assert figures_of(point(grid(), 0)["metrics"]) == alike(metrics_of("digits-resnet8"))


def test_a_race_chooses_within_the_noise_of_the_grid_with_less_work() -> None:
    race = document(*SWEEP, "--method", "race", "--batch-size", 32)
    assert race["method"] == "race"
    assert race["image_forwards"] < 0.9 * 9 * 449
    assert min(each["metrics"]["images"] for each in race["points"]) >= 250
    assert point(race, 0)["metrics"]["images"] == 449
    assert figures_of(point(race, 0)["metrics"]) == alike(figures_of(point(grid(), 0)["metrics"]), 1e-5)
    chosen, best = (point(grid(), value)["metrics"]["cross_entropy"] for value in (race["chosen"], grid()["chosen"]))
    assert chosen - best < 0.01
    for each in race["points"]:
        assert (each["metrics"]["images"] < 449) == (each["dropped"] is not None)
        assert each["dropped"] in {None, "beaten", "thinned out"}


def test_few_images_make_a_grid_the_default() -> None:
    assert document(*SWEEP)["method"] == "grid"


def test_confirming_reports_on_images_that_took_no_part() -> None:
    found = document(*SWEEP, "--confirm", "--method", "grid")
    assert (found["choosing_images"], found["confirming_images"]) == (225, 224)
    chosen = setting(found, found["best"])
    assert chosen["choosing"]["images"] == 225
    assert chosen["confirming"]["images"] == 224
    assert {gain["images"] for gain in chosen["gains"]} == {224}
    assert chosen["confirming"]["temperature"] == chosen["choosing"]["temperature"] == found["temperature"]
    assert found["image_forwards"] == 9 * 225 + 2 * 224
    assert "held-out images" in found["summary"][0]


def test_another_split_confirms() -> None:
    found = document(*QUICK, "--confirm-split", "test")
    assert (found["choosing_images"], found["confirming_images"]) == (60, 60)
    original = setting(found, "original")
    told = figures_of(document("eval", "digits-resnet8", "--data", "digits", "--limit", 60)["metrics"])
    for name in ("images", "accuracy", "cross_entropy", "ece"):
        assert original["confirming"][name] == pytest.approx(told[name], rel=1e-5), name
    assert original["choosing"]["cross_entropy"] != original["confirming"]["cross_entropy"]


def test_a_split_cannot_confirm_itself() -> None:
    assert "on itself" in refusal(*QUICK, "--confirm-split", "val")
    assert "no split 'tset'" in refusal(*QUICK, "--confirm-split", "tset")


def test_views_are_swept_as_they_are_evaluated() -> None:
    options = ("--limit", 60, "--tta", "crop")
    found = document("sweep", *DIGITS, "--alpha", "0,0.4", "--method", "grid", *options)
    assert (found["tta"], found["views"]) == ("crop", 5)
    assert figures_of(point(found, 0)["metrics"]) == alike(metrics_of("digits-resnet8", *options))


def test_only_some_layers() -> None:
    some = document(*QUICK, "--layers", "layer3.*")
    whole = document(*QUICK)
    assert point(some, 0)["metrics"] == point(whole, 0)["metrics"]
    assert point(some, 0.4)["metrics"] != point(whole, 0.4)["metrics"]


# --- files


def test_all_files_say_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    outcome = done(*QUICK, "-o", folder, "--json")
    assert set(contents(folder)) == FILES
    assert outcome.stdout == (folder / "result.json").read_text("utf-8")
    result = Sweep.model_validate_json(outcome.stdout)
    assert result.model_dump_json(indent=2) + "\n" == outcome.stdout
    page = (folder / "report.html").read_text("utf-8")
    assert "digits-resnet8" in page
    assert Image.open(folder / "curves.png").width > 300


def test_people_read_tables_curves_and_sentences(tmp_path: Path) -> None:
    outcome = done(*QUICK, "-o", tmp_path / "out")
    assert "original network" in outcome.stdout
    assert "Settings, on the same images" in outcome.stdout
    for sentence in json.loads((tmp_path / "out" / "result.json").read_text("utf-8"))["summary"]:
        assert f"• {sentence}" in outcome.stderr
    assert "predictions of 60 images" in outcome.stderr
    assert "8x8 px" in outcome.stderr


@pytest.mark.parametrize("metric", ["accuracy", "cross-entropy", "scaled-cross-entropy", "ece"])
@pytest.mark.parametrize("width", [80, 160])
def test_tables_fit_the_terminal(
    metric: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("surgeon.cli.output.PIPED_WIDTH", width)
    describe(made_by_hand(metric=metric), None)
    told = capsys.readouterr()
    rows = [line for line in told.out.splitlines() if line.startswith("│")]
    assert len(rows) == 9 + sum(not metrics[name].only_masks for name in metrics) + 2, (
        "each value and each metric has a line of its own"
    )
    assert "…" not in told.out
    assert ("±" in told.out) == (width == 80)
    assert "thinned out: " in told.err
    assert "beaten: " in told.err


def test_a_finished_sweep_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (*QUICK, "--per-layer", "-o", tmp_path / "out")
    first = document(*arguments)
    journal = (tmp_path / "out" / "journal.jsonl").read_bytes()
    monkeypatch.setattr(
        "surgeon.measuring.axes.AlphaAxis.logits", lambda *_, **__: pytest.fail("images were predicted again")
    )
    monkeypatch.setattr(
        "surgeon.commands.sweep.investigation.learn_alphas", lambda *_, **__: pytest.fail("alphas were learned again")
    )
    assert without_times(document(*arguments)) == without_times(first)
    assert without_times(json.loads((tmp_path / "out" / "result.json").read_text())) == without_times(first)
    assert (tmp_path / "out" / "journal.jsonl").read_bytes() == journal


def test_overwriting_computes_again(tmp_path: Path) -> None:
    document(*QUICK, "-o", tmp_path / "out")
    other = ("sweep", *DIGITS, "--limit", 40, "--alpha", "0,0.2", "-o", tmp_path / "out")
    assert "another" in refusal(*other)
    assert document(*other, "--overwrite")["choosing_images"] == 40
    assert set(contents(tmp_path / "out")) == FILES


# --- applying


def test_the_checkpoint_is_the_chosen_point(tmp_path: Path) -> None:
    found = document(*SWEEP, "--method", "grid", "--apply", "-o", tmp_path / "out")
    folder = tmp_path / "out" / "checkpoint"
    assert found["checkpoint"] == str(folder)
    alphas = {rewrites["example-weighted"]["alpha"] for rewrites in operations(folder).values()}
    assert alphas == {found["chosen"]}
    assert metrics_of(folder) == alike(figures_of(point(found, found["chosen"])["metrics"]))
    assert json.loads((folder / "surgery.json").read_text("utf-8"))["temperature"] is None
    done("verify", folder)
    card = (folder / "README.md").read_text("utf-8")
    assert "Swept alpha on 449 images of digits, split validation: " in card
    before, after = (setting["choosing"]["cross_entropy"] for setting in found["settings"])
    assert f"alpha {found['chosen']:g}: cross-entropy {before:.4f} to {after:.4f}, " in card


def test_the_temperature_is_stored_with_it(tmp_path: Path) -> None:
    found = document(*QUICK, "--temperature", "--force", "-o", tmp_path / "out")
    told = metrics_of(tmp_path / "out" / "checkpoint", "--limit", 60, "--batch-size", 16)
    expected = setting(found, found["best"])["choosing"]
    assert told["cross_entropy"] == pytest.approx(expected["scaled_cross_entropy"], rel=1e-5)
    assert told["accuracy"] == expected["accuracy"]
    assert told["temperature"] == pytest.approx(1, rel=1e-3)
    done("verify", tmp_path / "out" / "checkpoint")


@pytest.mark.parametrize("option", ["--per-layer", "--per-channel"])
def test_learned_alphas_are_told_and_applied(option: str, tmp_path: Path) -> None:
    found = document(*QUICK, option, "--force", "-o", tmp_path / "out")
    (learned,) = found["learned"]
    assert learned["kind"] == option.removeprefix("--")
    assert (found["choosing_images"], found["confirming_images"]) == (30, 30)
    name = f"alpha {option.removeprefix('--').replace('-', ' ')}"
    original, fitted = setting(found, "original"), setting(found, name)
    assert fitted["choosing"]["cross_entropy"] < original["choosing"]["cross_entropy"]
    assert any("Overfitting" in sentence for sentence in found["summary"])
    stored = {
        layer: rewrites["example-weighted"]["alpha"]
        for layer, rewrites in operations(tmp_path / "out" / "checkpoint").items()
    }
    if found["best"] == name:
        assert stored == learned["alphas"]
    else:
        assert set(stored.values()) == {found["chosen"]}


def test_a_converted_checkpoint_is_swept_as_it_is(tmp_path: Path) -> None:
    done("convert", "digits-resnet8", "--bn", "example-weighted:alpha=0.9", "-o", tmp_path / "model")
    again = document(*(tmp_path / "model" if part == "digits-resnet8" else part for part in QUICK))
    assert without_times(again)["points"] == without_times(document(*QUICK))["points"]


def test_a_gain_within_noise_is_not_stored_unless_forced(tmp_path: Path) -> None:
    """What is left is the original, also for who wants timm's form."""
    found = document(*QUICK, "--apply", "-o", tmp_path / "out")
    assert (found["best"], found["kept"]) == ("alpha 0.4", "original")
    assert "alpha 0.4 is not stored: its gain in cross-entropy is not significant, +0.0" in found["decision"]
    folder = tmp_path / "out" / "checkpoint"
    assert {rewrites["example-weighted"]["alpha"] for rewrites in operations(folder).values()} == {0.0}
    options = ("--limit", 60, "--batch-size", 16)
    assert metrics_of(folder, *options) == alike(metrics_of("digits-resnet8", *options), 1e-5)
    card = (folder / "README.md").read_text("utf-8")
    assert "alpha 0.4: cross-entropy " in card
    assert "not significant. The original is kept." in card
    told = done(*QUICK, "--apply", "-o", tmp_path / "out").stderr
    assert found["decision"] in told
    assert "Pass --force to store it anyway." in told
    assert "Checkpoint (original)" in told
    forced = document(*QUICK, "--force", "-o", tmp_path / "out")
    assert forced["kept"] == "alpha 0.4"
    assert "is stored because of --force, although its gain in cross-entropy is not significant" in forced["decision"]
    assert {rewrites["example-weighted"]["alpha"] for rewrites in operations(folder).values()} == {0.4}


def test_a_temperature_within_noise_is_not_stored(tmp_path: Path) -> None:
    few = ("sweep", *DIGITS, "--limit", 12, "--alpha", "0", "--temperature", "-o", tmp_path / "out")
    found = document(*few)
    assert found["temperature_gain"]["high"] > 0
    assert f"A temperature of {found['temperature']:.4f} is not stored" in found["decision"]
    record = json.loads((tmp_path / "out" / "checkpoint" / "surgery.json").read_text("utf-8"))
    assert record["temperature"] is None


# --- which images


def test_the_validation_images_choose_unless_others_are_asked_for() -> None:
    """With the same figures as if they had been named, and without a warning."""
    options = ("--limit", 60, "--alpha", "0,0.4", "--metric", "cross-entropy", "--batch-size", 16)
    found = document("sweep", "digits-resnet8", "--data", "digits", *options)
    assert (found["split"], found["warnings"]) == ("validation", [])
    assert found["points"] == document(*QUICK)["points"]


def test_test_images_choose_with_a_warning_everywhere(tmp_path: Path) -> None:
    on_test = ("sweep", "digits-resnet8", "--data", "digits", "--split", "test", *QUICK[6:], "--apply", "-o", "out")
    arguments = [tmp_path / "out" if part == "out" else part for part in on_test]
    (warning,) = document(*arguments)["warnings"]
    assert "Settings are chosen on test images" in warning
    assert f"warning: {warning}" in done(*arguments).stderr
    assert warning in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert warning in (tmp_path / "out" / "checkpoint" / "README.md").read_text("utf-8")


def test_without_validation_images_half_is_held_back(tmp_path: Path) -> None:
    data = write_digits(tmp_path / "data" / "test").parent
    found = document("sweep", "digits-resnet8", "--data", data, "--alpha", "0,0.4")
    assert (found["split"], found["choosing_images"], found["confirming_images"]) == ("test", 20, 20)
    assert "chosen on half of its test images, and the other half is held out" in found["warnings"][0]
    assert "cannot confirm" in refusal("sweep", "digits-resnet8", "--data", data, "--confirm-split", "test")


# --- few images


def test_one_image_says_nothing_and_says_so() -> None:
    outcome = done(*DIGITS_ONE)
    assert "unbounded), not significant" in outcome.stdout
    found = document(*DIGITS_ONE)
    assert point(found, 0.4)["gain"]["low"] == "-Infinity"
    assert Sweep.model_validate(found).points[1].gain.within_noise


DIGITS_ONE = ("sweep", *DIGITS, "--limit", 1, "--alpha", "0,0.4", "--metric", "cross-entropy")


@pytest.mark.parametrize("option", ["--confirm", "--per-layer"])
def test_one_image_cannot_be_halved(option: str) -> None:
    assert "A set of 1 image cannot be halved" in refusal(*DIGITS_ONE, option)


def test_two_images_can_be_halved() -> None:
    arguments = ("sweep", *DIGITS, "--limit", 2, "--alpha", "0,0.4", "--metric", "cross-entropy", "--confirm")
    found = document(*arguments)
    assert (found["choosing_images"], found["confirming_images"]) == (1, 1)


# --- other data


def write_digits(folder: Path, classes: range = range(10), each: int = 4) -> Path:
    pixels, labels = digit_pixels("validation")
    for label in classes:
        for number, index in enumerate(np.flatnonzero(labels == label)[:each]):
            path = folder / str(label) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[index]).save(path)
    return folder


def test_a_folder_of_images_that_lacks_a_class_is_refused(tmp_path: Path) -> None:
    folder = write_digits(tmp_path / "images")
    shutil.rmtree(folder / "3")
    said = refusal("sweep", "digits-resnet8", "--data", folder, "--alpha", "0,0.4")
    assert "9 classes" in said
    assert "10 outputs" in said


def test_numbers_as_labels_may_lack_a_class(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = write_digits(tmp_path / "images")
    files = sorted(path for path in folder.rglob("*.png") if path.parent.name != "3")
    table = pa.table(
        {
            "image": [{"bytes": path.read_bytes(), "path": path.name} for path in files],
            "label": [int(path.parent.name) for path in files],
        }
    )
    pq.write_table(table, tmp_path / "digits.parquet")
    found = document("sweep", "digits-resnet8", "--data", tmp_path / "digits.parquet", "--alpha", "0,0.4", "--confirm")
    assert found["choosing_images"] + found["confirming_images"] == 36


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    folder = write_digits(tmp_path / "images" / "train").parent
    for label in range(10):
        (folder / "test" / str(label)).mkdir(parents=True)
    assert "holds no images" in refusal("sweep", "digits-resnet8", "--data", folder, "--alpha", "0,0.4")


def test_classes_that_do_not_fit_are_told_before_computing() -> None:
    arguments = ("sweep", "digits-resnet8", "--no-pretrained", "--num-classes", 7, "--data", "digits")
    assert "7 outputs" in refusal(*arguments)


# --- preprocessing


def test_changed_preprocessing_is_shown_and_counts() -> None:
    plain = document(*QUICK)
    options = ("--mean", "0.3", "--std", "0.4", "--crop-pct", "0.5", "--interpolation", "nearest", "--input-size", 16)
    changed = document(*QUICK, *options)
    expected = {"mean": [0.3], "std": [0.4], "crop_pct": 0.5, "interpolation": "nearest", "input_size": [1, 16, 16]}
    assert {name: changed["preprocessing"][name] for name in expected} == expected
    assert point(changed, 0)["metrics"] != point(plain, 0)["metrics"]
    assert "16x16 px, nearest, crop 0.5, mean 0.3, std 0.4" in done(*QUICK, *options).stderr


@pytest.mark.parametrize("command", ["sweep", "eval"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--crop-pct", "2"], "--crop-pct cannot be 2"),
        (["--crop-pct", "0"], "--crop-pct cannot be 0"),
        (["--crop-pct", "nan"], "--crop-pct cannot be nan"),
        (["--mean", "1,2"], "--mean lists 2 numbers, but the images have 1 channel"),
        (["--mean", "x"], "--mean cannot be 'x'"),
        (["--std", "0"], "--std cannot be 0 or less"),
        (["--std", "-1"], "--std cannot be 0 or less"),
        (["--std", "nan"], "--std cannot be"),
        (["--interpolation", "x"], "--interpolation cannot be 'x'. Choose bilinear"),
    ],
)
def test_impossible_preprocessing_is_refused(command: str, options: list[str], expected: str) -> None:
    assert expected in refusal(command, *DIGITS, *options)


# --- refusals


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--metric", "acuracy"], "accuracy"),
        (["--method", "rase"], "Choose race or grid"),
        (["--alpha", "0:0.2"], "FROM:TO:COUNT"),
        (["--alpha", "0,2"], "--alpha cannot be 2: it must lie between 0 and 1"),
        (["--alpha", ""], "FROM:TO:COUNT"),
        (["--apply"], "Pass one with -o DIR"),
        (["--temperature"], "Pass one with -o DIR"),
        (["--tta", "flip-corp"], "flip-crop"),
        (["--merge", "sum"], "geometric"),
        (["--layers", "layer9.*"], "layer9.*"),
        (["--split", "tset"], "test"),
    ],
)
def test_refusals(options: list[str], expected: str) -> None:
    assert expected in refusal("sweep", *DIGITS, *options)


def test_wrong_words_are_told_before_the_network_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surgeon.checkpoint.open_model", lambda *_, **__: pytest.fail("the model was opened"))
    for options in (["--metric", "x"], ["--method", "x"], ["--alpha", "x"], ["--apply"], ["--precision", "x"]):
        refusal("sweep", *DIGITS, *options)


def test_a_folder_with_other_things_in_it_is_refused_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    monkeypatch.setattr("surgeon.checkpoint.open_model", lambda *_, **__: pytest.fail("the model was opened"))
    assert "already exists" in refusal(*QUICK, "-o", tmp_path / "mine")
    assert contents(tmp_path / "mine") == {"notes.txt": b"mine"}
    assert "is not a folder" in refusal(*QUICK, "-o", tmp_path / "mine" / "notes.txt")
    assert "is not a folder" in refusal(*QUICK, "-o", tmp_path / "mine" / "notes.txt" / "below")
    assert contents(tmp_path / "mine") == {"notes.txt": b"mine"}


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done(*QUICK, "-o", tmp_path / "out")
    assert set(contents(tmp_path / "out")) == FILES


def test_layers_of_a_converted_checkpoint_cannot_be_chosen_again(tmp_path: Path) -> None:
    surgeon.save(
        surgeon.convert(surgeon.load(Path(surgeon.__file__).parent / "assets" / "digits-resnet8"), "example-weighted"),
        tmp_path / "model",
    )
    said = refusal("sweep", tmp_path / "model", "--data", "digits", "--layers", "layer1.*")
    assert "--layers does not apply" in said


def test_a_refused_sweep_leaves_no_folder(tmp_path: Path) -> None:
    refusal("sweep", *DIGITS, "--layers", "layer9.*", "-o", tmp_path / "out")
    refusal("sweep", "digits-resnet8", "--data", "no/such", "-o", tmp_path / "out")
    assert not list(tmp_path.glob("out*"))
