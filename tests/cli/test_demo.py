"""`surgeon demo`: the main job on the bundled model, offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from surgeon.commands.demo import ALPHAS, COMMAND
from tests.cli.running import FILES, Outcome, contents, done, invoke, refusal


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    folder = tmp_path_factory.mktemp("demo") / "out"
    return done("demo", "-o", folder, "--json"), folder


def test_example_weighting_helps(played: tuple[Outcome, Path]) -> None:
    told = json.loads(played[0].stdout)
    curve = {point["value"]: point["metrics"]["cross_entropy"] for point in told["points"]}
    assert tuple(curve) == ALPHAS
    assert told["chosen"] > 0
    assert curve[told["chosen"]] == min(curve.values()) < 0.8 * curve[0.0]
    # and on held-out images
    plain, chosen = (setting["confirming"] for setting in told["settings"])
    assert chosen["cross_entropy"] < 0.8 * plain["cross_entropy"]
    assert chosen["accuracy"] >= plain["accuracy"] > 0.9
    assert plain["images"] == 450


def test_leaves_a_report_and_a_checkpoint(played: tuple[Outcome, Path]) -> None:
    told, folder = json.loads(played[0].stdout), played[1]
    report = ["curves.png", "journal.jsonl", "report.html", "result.json"]
    assert sorted(contents(folder)) == sorted([*report, *(f"checkpoint/{name}" for name in FILES)])
    assert json.loads((folder / "result.json").read_text("utf-8")) == told
    with Image.open(folder / "curves.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 2 * 400
    done("verify", folder / "checkpoint")
    record = json.loads((folder / "checkpoint/surgery.json").read_text("utf-8"))
    step = next(step for step in record["history"] if step["kind"] == "swept")
    assert (step["chosen_on"]["number"], step["held_out"]) == (told["choosing_images"], told["confirming_images"])
    assert (step["best"], step["stored"]) == (told["kept"], True)
    assert [setting["gains"] for setting in step["settings"]] == [setting["gains"] for setting in told["settings"]]
    for kept, whole in zip(step["settings"], told["settings"], strict=True):
        assert kept["held_out"]["values"]["cross-entropy"] == whole["confirming"]["cross_entropy"]


def test_is_for_people_by_default(here: Path) -> None:
    outcome = done("demo")
    assert "cross-entropy by alpha" in outcome.stderr
    assert "● chosen" in outcome.stderr
    assert "original network" in outcome.stdout
    assert "held-out images" in outcome.stderr
    assert [folder.name for folder in here.iterdir()] == ["surgeon-demo"]


def test_is_the_command_that_it_names(played: tuple[Outcome, Path], tmp_path: Path) -> None:
    told = json.loads(done(*COMMAND.split()[1:], "-o", tmp_path / "again", "--json").stdout)
    first = json.loads(played[0].stdout)
    for document in (told, first):
        del document["seconds"], document["spent"], document["checkpoint"]
    assert told == first


def test_works_where_the_output_takes_no_braille() -> None:
    assert invoke("demo", charset="ascii").code == 0


def test_a_file_in_the_way_is_kept(here: Path) -> None:
    (here / "file").write_text("mine")
    refusal("demo", "-o", "file")
    assert contents(here) == {"file": b"mine"}
