"""`surgeon recalibrate`: what is told, what is stored, and what is refused."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file

import surgeon
from surgeon.checkpoint import open_model
from surgeon.data.digits import digit_pixels
from surgeon.data.loaders import batches
from surgeon.data.opening import open_data
from surgeon.data.stratified import halves, limit
from surgeon.surgery.recalibration import DEFAULT_PRIOR
from tests.cli.running import (
    FILES,
    PAUSE_AFTER_WRITING_THE_WEIGHTS,
    Process,
    contents,
    document,
    done,
    refusal,
)

REPORT = ["report/recalibration.png", "report/report.html", "report/result.json"]


@pytest.fixture
def faded(here: Path) -> Path:
    """Digits of little contrast, in folders of their classes."""
    pixels, labels = digit_pixels("test")
    for number, (image, label) in enumerate(zip(pixels[:80], labels[:80], strict=True)):
        folder = here / "faded" / str(int(label))
        folder.mkdir(parents=True, exist_ok=True)
        grey = 110 + 0.15 * np.asarray(image, dtype=float)
        Image.fromarray(grey.astype(np.uint8)).save(folder / f"{number}.png")
    return here / "faded"


@pytest.fixture
def flat(faded: Path, here: Path) -> Path:
    """The same without classes."""
    (here / "flat").mkdir()
    for file in faded.rglob("*.png"):
        shutil.copy(file, here / "flat")
    return here / "flat"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_without_labels_nothing_is_claimed_of_accuracy(flat: Path, here: Path) -> None:
    told = done("recalibrate", "digits-resnet8", "--data", flat, "-o", "out")
    assert "Without labels, it is unknown" in told.stderr
    assert "mean confidence" in told.stderr
    assert "from 80 images, without labels and with a weight of 7.2%" in told.stderr
    moved = json.loads((here / "out" / "report" / "result.json").read_text("utf-8"))["layers"]
    average = sum(layer["mean_shift"] for layer in moved) / len(moved)
    for text in (told.stderr, (here / "out" / "README.md").read_text("utf-8")):
        assert f"Means moved by {average:.3f} standard deviations" in text
    page, card = (here / "out" / name for name in ("report/report.html", "README.md"))
    for text in (told.stdout, told.stderr, page.read_text("utf-8"), card.read_text("utf-8")):
        assert "accuracy" not in text.lower().replace("figure(&quot;accuracy", "")
    assert sorted(contents(here / "out")) == sorted([*FILES, *REPORT])
    record = json.loads((here / "out" / "report" / "result.json").read_text("utf-8"))
    assert (record["prior"], record["images"], record["confirmed"]) == (DEFAULT_PRIOR, 80, None)
    done("verify", "out")


def test_the_same_images_in_another_form_give_the_same_numbers(flat: Path, faded: Path, here: Path) -> None:
    files = sorted(flat.iterdir())
    pq.write_table(pa.table({"image": [{"bytes": file.read_bytes(), "path": None} for file in files]}), "table.parquet")
    for name, data in (("a", flat), ("b", faded), ("c", "table.parquet")):
        found = document("recalibrate", "digits-resnet8", "--data", data, "--prior", 0, "-o", name)
        assert found["images"] == 80
    a, b, c = (weights(here / name) for name in "abc")
    for name, value in a.items():
        torch.testing.assert_close(b[name], value, rtol=1e-4, atol=1e-4)
        assert torch.equal(c[name], value) or torch.allclose(c[name], value, rtol=1e-4, atol=1e-4)


def test_keeping_the_old_statistics_keeps_every_bit(flat: Path, here: Path) -> None:
    found = document("recalibrate", "digits-resnet8", "--data", flat, "--prior", "inf", "-o", "out")
    assert found["change"]["changed"] == 0
    assert found["prior"] == "Infinity"
    few = document("recalibrate", "digits-resnet8", "--data", flat, "--prior", "inf", "--limit", 20)
    assert not any("noisy" in warning for warning in few["warnings"])
    stored, before = weights(here / "out"), open_model("digits-resnet8").model.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in stored.items() if name in before)


def test_selected_layers_alone(flat: Path, here: Path) -> None:
    found = document("recalibrate", "digits-resnet8", "--data", flat, "--layers", "layer1.*", "-o", "out")
    assert [layer["layer"] for layer in found["layers"]] == ["layer1.0.bn1", "layer1.0.bn2"]
    before = open_model("digits-resnet8").model.state_dict()
    changed = {name for name, value in weights(here / "out").items() if not torch.equal(value, before[name])}
    assert changed == {f"layer1.0.bn{i}.running_{of}" for i in (1, 2) for of in ("mean", "var")}


def test_confirmed_on_the_other_half_and_on_the_original_domain(faded: Path, here: Path) -> None:
    options = ("--prior", 16, "--confirm", "--source", "digits", "--limit", 70)
    found = document("recalibrate", "digits-resnet8", "--data", faded, *options, "-o", "out")
    assert (found["images"], found["confirmed"]["after"]["images"], found["source"]["after"]["images"]) == (35, 35, 70)
    metrics = ["accuracy", "cross-entropy", "scaled-cross-entropy"]
    for part in ("confirmed", "source"):
        assert [gain["metric"] for gain in found[part]["gains"]] == metrics
        accuracy = found[part]["gains"][0]
        before, after = (found[part][when]["accuracy"] for when in ("before", "after"))
        assert accuracy["low"] < accuracy["difference"] < accuracy["high"]
        assert accuracy["difference"] == pytest.approx(after - before)
    assert any("35 images are noisy" in warning for warning in found["warnings"])
    again = document("eval", "out", "--data", "digits", "--limit", 70)
    assert again["metrics"]["accuracy"] == found["source"]["after"]["accuracy"]
    (step,) = [s for s in json.loads((here / "out/surgery.json").read_text())["history"] if s["kind"] == "recalibrated"]
    assert len(step["gains"]) == len(step["source_gains"]) == 3


def test_every_image_is_predicted_by_the_network_that_the_other_half_has_adapted(faded: Path) -> None:
    options = ("--prior", 16, "--confirm", "--limit", 71, "--save-logits", "adapted.safetensors")
    told = document("recalibrate", "digits-resnet8", "--data", faded, *options)
    saved = load_file("adapted.safetensors")
    document("eval", "digits-resnet8", "--data", faded, "--limit", 71, "--save-logits", "original.safetensors")
    original = load_file("original.safetensors")
    assert torch.equal(saved["indices"], original["indices"])
    assert torch.equal(saved["labels"], original["labels"])

    images = open_data(str(faded))
    images = images.subset(limit(images.labels, 71))
    pixels = torch.cat(
        [batch.images for batch in batches(images, open_model("digits-resnet8").origin.preprocessing, 71)]
    )
    expected = torch.empty_like(saved["logits"])
    first, second = halves(images.labels)
    for adapting, measured in ((first, second), (second, first)):
        network = open_model("digits-resnet8").model.eval()
        surgeon.recalibrate(network, pixels[adapting], prior=16)
        with torch.no_grad():
            expected[measured] = network(pixels[measured])
    torch.testing.assert_close(saved["logits"], expected, rtol=1e-4, atol=1e-4)
    right = (saved["logits"].argmax(1) == saved["labels"])[second].float().mean()
    assert told["confirmed"]["after"]["accuracy"] == pytest.approx(right.item())
    assert not torch.allclose(saved["logits"], original["logits"], atol=0.1)


def test_entropy_is_minimised_and_told(flat: Path, here: Path) -> None:
    told = done("recalibrate", "digits-resnet8", "--data", flat, "--tent", "--epochs", 1, "--lr", 1e-4, "-o", "out")
    assert "Entropy minimisation over gamma and beta of 7 layers, 1 epoch" in told.stderr
    record = json.loads((here / "out" / "report" / "result.json").read_text("utf-8"))
    assert record["entropy"]["after"]["entropy"] < record["entropy"]["before"]["entropy"]
    assert (
        "adapted by entropy minimisation, 1 epoch at a learning rate of 0.0001" in (here / "out/README.md").read_text()
    )
    done("verify", "out")


def test_a_collapse_is_stopped_and_told(flat: Path) -> None:
    found = document("recalibrate", "digits-resnet8", "--data", flat, "--tent", "--lr", 10)
    assert found["entropy"]["collapsed"]
    assert found["entropy"]["epochs"] < 5
    assert any("Entropy minimisation was stopped" in warning for warning in found["warnings"])


def test_images_of_one_class_are_warned_of() -> None:
    pixels, labels = digit_pixels("test")
    folder = Path("zeros")
    folder.mkdir()
    for number, image in enumerate(pixels[labels == 0]):
        Image.fromarray(image).save(folder / f"{number}.png")
    found = document("recalibrate", "digits-resnet8", "--data", folder)
    assert any("about 1 of the 10 classes" in warning for warning in found["warnings"])


@pytest.mark.parametrize(("labels", "warned"), [([3] * 80, True), (list(range(10)) * 8, False), ([-1] * 80, False)])
def test_labels_of_a_table_serve_to_warn_of_one_class(labels: list[int], warned: bool, flat: Path) -> None:
    """Predictions for strange images are of many classes, even if the images are of one."""
    images = [{"bytes": file.read_bytes(), "path": None} for file in sorted(flat.iterdir())]
    pq.write_table(pa.table({"image": images, "label": labels}), "table.parquet")
    found = document("recalibrate", "digits-resnet8", "--data", "table.parquet")
    assert any("about 1 of the 10 classes" in warning for warning in found["warnings"]) == warned


def test_images_that_cannot_be_read(flat: Path, here: Path) -> None:
    good = document("recalibrate", "digits-resnet8", "--data", flat, "-o", "good")
    (flat / "bad.png").write_bytes(b"no picture")
    assert "bad.png" in refusal("recalibrate", "digits-resnet8", "--data", flat, "-o", "out")
    assert not (here / "out").exists()
    found = document("recalibrate", "digits-resnet8", "--data", flat, "--skip-bad", "-o", "out")
    assert (found["images"], found["weight"]) == (80, good["weight"])
    assert found["bad_images"] == ["bad.png of flat"]


def test_one_image(flat: Path) -> None:
    found = document("recalibrate", "digits-resnet8", "--data", flat, "--limit", 1)
    assert found["images"] == 1
    assert any("1 image are noisy" in warning for warning in found["warnings"])
    assert "cannot be halved" in refusal("recalibrate", "digits-resnet8", "--data", "digits", "--limit", 1, "--confirm")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--prior", "-1"), "--prior cannot be '-1'"),
        (("--prior", "many"), "--prior cannot be 'many'"),
        (("--prior", "nan"), "--prior cannot be 'nan'"),
        (("--epochs", 3), "--epochs is for --tent"),
        (("--tent", "--lr", 0), "--lr cannot be 0"),
        (("--collect",), "nothing to collect"),
        (("--collect", "--tent"), "--collect"),
        (("--layers", "layer9.*"), "layer9"),
        (("--where", "severity=5"), "--where"),
        (("--save-logits", "logits.safetensors"), "add --confirm"),
    ],
)
def test_refusals(options: tuple[object, ...], said: str, here: Path) -> None:
    told = refusal("recalibrate", "digits-resnet8", "--data", "digits", *map(str, options), "-o", "out")
    assert said in told
    assert not (here / "out").exists()


def test_networks_without_batch_norm(here: Path) -> None:
    data = ("--no-pretrained", "--data", "digits", "--limit", 2)
    assert "no layer whose running" in refusal("recalibrate", "test_vit", *data, "-o", "out")
    assert not (here / "out").exists()


def test_weights_that_give_no_numbers(flat: Path, here: Path) -> None:
    model = open_model("digits-resnet8").model
    with torch.no_grad():
        model.conv1.weight[0, 0, 0, 0] = float("nan")
    surgeon.save(model, "broken")
    assert "is not finite" in refusal("recalibrate", "broken", "--data", flat, "-o", "out", code=1)
    assert not (here / "out").exists()


def test_an_existing_folder_is_replaced_only_if_that_is_asked_for(flat: Path, here: Path) -> None:
    arguments = ("recalibrate", "digits-resnet8", "--data", flat, "-o", "out")
    done(*arguments)
    before = contents(here / "out")
    assert "already exists" in refusal(*arguments, "--prior", 0)
    assert contents(here / "out") == before
    done(*arguments, "--prior", 0, "--overwrite")
    assert contents(here / "out").keys() == before.keys()


def test_killed_in_the_middle_the_old_output_stays(flat: Path, here: Path, tmp_path: Path) -> None:
    arguments = ("recalibrate", "digits-resnet8", "--data", flat, "-o", "out")
    done(*arguments)
    before = contents(here / "out")
    killed = (*arguments, "--prior", 0, "--overwrite")
    process = Process(PAUSE_AFTER_WRITING_THE_WEIGHTS, *killed, streams=tmp_path)
    process.wait_until(lambda: process.has_printed("written\n"))
    process.send(signal.SIGKILL)
    process.outcome()
    left = {name: data for name, data in contents(here / "out").items() if not name.startswith(".unfinished")}
    assert left == before
    done("verify", "out")


def test_the_result_is_plain_timm(faded: Path, here: Path) -> None:
    options = ("--no-pretrained", "--num-classes", 10, "--input-size", 32, "--prior", 0)
    done("recalibrate", "test_resnet", "--data", faded, *options, "-o", "out")
    done("export", "out", "--to", "timm", "-o", "plain")
    plain = timm.create_model("test_resnet", num_classes=10, pretrained=False)
    plain.load_state_dict(load_file(here / "plain" / "model.safetensors"))
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(x), surgeon.load("out").eval()(x))


def test_group_norm_collects_and_is_swept(faded: Path) -> None:
    model = ("resnet50_gn", "--no-pretrained", "--num-classes", 10)
    images = ("--data", faded, "--input-size", 32, "--limit", 16)
    found = document("recalibrate", *model, *images, "--collect", "-o", "collected")
    assert found["prior"] is None
    assert found["collected"]
    swept = document("sweep", "collected", *images, "--alpha", "0.9,0.95,1", "--method", "grid")
    assert [point["value"] for point in swept["points"]] == [0.9, 0.95, 1.0]
