"""`surgeon inspect MODEL --data`: whether images are shifted for a network, told, drawn and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from surgeon.data.digits import digit_pixels
from tests.cli.running import document, done, refusal


def test_images_like_those_of_training_are_not_shifted() -> None:
    found = document("inspect", "digits-resnet8", "--data", "digits", "--split", "test", "--limit", 200)
    shift = found["shift"]
    assert shift["images"] == 200
    assert [layer["name"] for layer in shift["layers"]] == [layer["name"] for layer in found["layers"]]
    assert shift["overall"]["verdict"] in ("no shift", "usual")
    told = done("inspect", "digits-resnet8", "--data", "digits", "--limit", 200)
    assert "sampling noise" in told.stdout
    assert "No unusual shift" in told.stderr or "No shift" in told.stderr


@pytest.fixture
def faded(here: Path) -> Path:
    """Digits of little contrast, in folders of their classes."""
    pixels, labels = digit_pixels("test")
    for number, (image, label) in enumerate(zip(pixels[:60], labels[:60], strict=True)):
        folder = here / "faded" / str(int(label))
        folder.mkdir(parents=True, exist_ok=True)
        grey = 110 + 0.15 * np.asarray(image, dtype=float)
        Image.fromarray(grey.astype(np.uint8)).save(folder / f"{number}.png")
    return here / "faded"


def test_a_shift_is_found_and_drawn(faded: Path, here: Path) -> None:
    told = done("inspect", "digits-resnet8", "--data", faded, "-o", "out")
    assert "The images are shifted for this network" in told.stderr
    assert "shift.png" in told.stderr
    assert sorted(path.name for path in (here / "out").iterdir()) == ["report.html", "result.json", "shift.png"]
    record = json.loads((here / "out" / "result.json").read_text("utf-8"))
    assert record["shift"]["overall"]["verdict"] == "shifted"
    page = (here / "out" / "report.html").read_text("utf-8")
    assert page.count('<span class="badge">shifted</span>') == sum(
        layer["verdict"] == "shifted" for layer in record["shift"]["layers"]
    )
    assert page.count("<svg viewBox") >= 2


def test_images_need_no_labels(faded: Path, here: Path) -> None:
    flat = here / "flat"
    flat.mkdir()
    for file in faded.rglob("*.png"):
        file.rename(flat / file.name)
    shift = document("inspect", "digits-resnet8", "--data", flat, "--limit", 40)["shift"]
    assert shift["images"] == 40
    assert shift["overall"]["verdict"] == "shifted"


def test_refusals() -> None:
    assert "cannot tell a shift" in refusal("inspect", "digits-resnet8", "--data", "digits", "--limit", 3)
    assert "there is no --data" in refusal("inspect", "digits-resnet8", "-o", "out")
    assert "nothing to compare" in refusal("inspect", "vit_tiny_patch16_224", "--no-pretrained", "--data", "digits")
