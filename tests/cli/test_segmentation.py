"""Segmentation on the command line: train, resume, measure, sweep, recalibrate, draw masks; and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from surgeon.checkpoint.record import CARD
from tests.cli.running import invoke as run
from tests.unit.segmentation.nets import HEIGHT, WIDTH, write_folders, write_table

NET = "torchvision:lraspp_mobilenet_v3_large"
QUICK = ("--epochs", "1", "--batch-size", "4", "--input-size", "32", "--workers", "0")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a run on them."""
    place = tmp_path_factory.mktemp("segmentation")
    write_folders(place / "data", {"train": 8, "validation": 3, "test": 4})
    (place / "data" / "classes.txt").write_text("ground\nbox\nwater\n")
    done = run("finetune", NET, "--no-pretrained", "--data", str(place / "data"), "-o", str(place / "run"), *QUICK)
    assert done.code == 0, done.stderr
    assert "3 classes for each pixel; void is 3 and 255" in done.stderr
    return place


def test_a_run_is_measured_and_tagged(trained: Path) -> None:
    result = json.loads((trained / "run" / "result.json").read_text())
    assert result["test"]["iou"] is not None
    assert result["recipe"]["sweep_metric"] == "iou"
    assert "pipeline_tag: image-segmentation" in (trained / "run" / "checkpoint" / CARD).read_text()


def test_eval_with_views_and_a_report(trained: Path) -> None:
    arguments = ("eval", str(trained / "run" / "checkpoint"), "--data", str(trained / "data"))
    done = run(*arguments, "--tta", "flip", "-o", "out", "--json")
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["masks"]["classes"]] == ["ground", "box", "water"]
    assert found["masks"]["void"] == [3, 255]
    assert found["views"] == 2
    assert {"evaluation.png", "masks.png", "report.html", "result.json"} <= {
        file.name for file in Path("out").iterdir()
    }
    page = Path("out/report.html").read_text()
    assert "of the pixels are right" in page


def test_sweep_recalibrate_and_robustness(trained: Path) -> None:
    checkpoint, data = str(trained / "run" / "checkpoint"), str(trained / "data")
    swept = run("sweep", checkpoint, "--data", data, "--alpha", "0:0.1:2", "--metric", "iou", "--confirm-split", "test")
    assert swept.code == 0, swept.stderr
    assert "mean IoU" in swept.stdout
    estimated = run("recalibrate", checkpoint, "--data", data, "--confirm", "--prior", "4", "-o", "adapted")
    assert estimated.code == 0, estimated.stderr
    under = ("--under", "elastic-transform:severity=1", "--under", "brightness:severity=2")
    measured = run("robustness", checkpoint, "adapted", "--data", data, *under, "-o", "rob")
    assert measured.code == 0, measured.stderr
    assert "the error is 1 - mean IoU" in measured.stderr


def test_masks_are_drawn(trained: Path) -> None:
    images = trained / "data" / "test" / "images"
    done = run("predict", str(trained / "run" / "checkpoint"), str(images), "-o", "masks", "--json")
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["masks"]) == 4
    mask = Image.open(found["masks"][0]["file"])
    assert (mask.size, mask.mode) == ((WIDTH, HEIGHT), "P")
    shares = np.bincount(np.asarray(mask).ravel(), minlength=3) / mask.width / mask.height
    told = {one["output"]: one["share"] for one in found["masks"][0]["classes"]}
    assert told == {number: pytest.approx(share) for number, share in enumerate(shares) if share}
    assert json.loads(Path("masks/classes.json").read_text())["1"]["name"] == "box"
    again = run("predict", str(trained / "run" / "checkpoint"), str(images), "-o", "masks")
    assert (again.code, "already exists" in again.stderr) == (2, True)


def test_preview(trained: Path) -> None:
    for name in ("standard", "elastic-transform"):
        done = run("preview", name, "--data", str(trained / "data"), "--count", "2", "-o", f"{name}.png")
        assert done.code == 0, done.stderr
        assert Image.open(f"{name}.png").width > 100
    done = run("preview", "mixup", "--data", str(trained / "data"), "-o", "no.png")
    assert (done.code, "masks would no longer match" in done.stderr) == (2, True)


def test_a_run_can_be_resumed(trained: Path) -> None:
    where = shutil.copytree(trained / "run", "copy")
    (Path(where) / "result.json").unlink()
    again = ("finetune", NET, "--no-pretrained", "--data", str(trained / "data"), "-o", str(where), *QUICK, "--resume")
    done = run(*again)
    assert done.code == 0, done.stderr
    before, after = (json.loads((Path(one) / "result.json").read_text()) for one in (trained / "run", where))
    assert before["test"] == after["test"]


REFUSED = {
    ("eval", "--tta", "five-crop"): "cut away parts of the image",
    ("eval", "--crop-pct", "0.9"): "Whole images are segmented",
    ("eval", "--save-logits", "logits.safetensors"): "The logits of masks are too many",
    ("eval", "--under", "fgsm"): "networks that classify images",
    ("sweep", "--metric", "top5"): "--metric top5 has no value for segmentation",
    ("recalibrate", "--tent"): "not over masks",
    ("affinity", "--augment", "cutout"): "not by masks",
    ("eval", "--problem", "detection"): "There is no problem 'detection'",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_what_masks_do_not_have(trained: Path, arguments: tuple[str, ...]) -> None:
    command, *options = arguments
    done = run(command, str(trained / "run" / "checkpoint"), "--data", str(trained / "data"), *options)
    assert (done.code, REFUSED[arguments] in done.stderr) == (2, True), done.stderr


def test_networks_and_data_of_different_problems(trained: Path) -> None:
    done = run("eval", "cifar-resnet20", "--no-pretrained", "--data", str(trained / "data"))
    assert (done.code, "scores of every class for each pixel" in done.stderr) == (2, True), done.stderr
    done = run("eval", str(trained / "run" / "checkpoint"), "--data", "digits")
    assert done.code == 2, done.stderr
    done = run(
        "finetune", NET, "--no-pretrained", "--data", str(trained / "data"), "-o", "x", *QUICK, "--insert", "moex"
    )
    assert (done.code, "masks cannot be mixed" in done.stderr) == (2, True), done.stderr


def test_bad_masks_end_a_run(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "bad", {"train": 6, "test": 2})
    (root / "classes.txt").write_text("ground\nbox\nwater\n")
    Image.new("L", (WIDTH, HEIGHT), 9).save(root / "train" / "masks" / "000.png")
    done = run("finetune", NET, "--no-pretrained", "--data", str(root), "-o", "bad", *QUICK)
    assert (done.code, "has the value 9, and there are 3 classes" in done.stderr) == (2, True), done.stderr
    assert not Path("bad").exists()


def test_a_table_takes_its_classes_from_the_network(trained: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "night" / "test.parquet", 4, void=3)
    done = run("eval", str(trained / "run" / "checkpoint"), "--data", str(table), "--where", "name!=dusk_*", "--json")
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["metrics"]["images"] == 2
    assert found["masks"]["void"] == [3, 255]
