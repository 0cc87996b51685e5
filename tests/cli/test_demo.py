"""`surgeon demo`: the main job on the bundled model, offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from surgeon.demo import ALPHAS
from tests.cli.running import FILES, Outcome, contents, done, invoke, refusal


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    folder = tmp_path_factory.mktemp("demo") / "out"
    return done("demo", "-o", folder, "--json"), folder


def test_example_weighting_helps(played: tuple[Outcome, Path]) -> None:
    told = json.loads(played[0].stdout)
    curve = {float(alpha): scores for alpha, scores in told["curve"].items()}
    chosen, plain = curve[told["chosen_alpha"]], curve[0.0]
    assert tuple(curve) == ALPHAS
    assert told["chosen_alpha"] > 0
    assert chosen["cross_entropy"] == min(scores["cross_entropy"] for scores in curve.values())
    assert chosen["cross_entropy"] < 0.8 * plain["cross_entropy"]
    # and on images that took no part in the choice
    assert told["test_chosen"]["cross_entropy"] < 0.8 * told["test_plain"]["cross_entropy"]
    assert told["test_chosen"]["accuracy"] >= told["test_plain"]["accuracy"] > 0.9
    assert told["test_plain"]["images"] == 450


def test_the_original_network_is_where_it_starts(played: tuple[Outcome, Path]) -> None:
    told = json.loads(played[0].stdout)
    assert told["conversion"]["identity_difference"] <= 1e-5
    assert told["conversion"]["rewrites"] == f"ghost:size=4 + example-weighted:alpha={told['chosen_alpha']}"


def test_leaves_a_picture_and_a_checkpoint(played: tuple[Outcome, Path]) -> None:
    told, folder = json.loads(played[0].stdout), played[1]
    assert sorted(contents(folder)) == ["alpha.png", *(f"checkpoint/{name}" for name in FILES)]
    with Image.open(told["picture"]) as picture:
        assert picture.format == "PNG"
        assert picture.width > 2 * 400
        colours = picture.convert("RGB").getcolors(maxcolors=1 << 20)
    assert len(colours) > 50  # something was drawn
    done("verify", folder / "checkpoint")


def test_is_for_people_by_default(here: Path) -> None:
    outcome = done("demo")
    assert "cross-entropy by alpha" in outcome.stdout
    assert "● = chosen" in outcome.stdout
    assert "validation, alpha 0 (original)" in outcome.stdout
    assert "no retraining" in outcome.stderr
    assert [folder.name for folder in here.iterdir()] == ["surgeon-demo"]


def test_can_be_played_again(played: tuple[Outcome, Path]) -> None:
    again = json.loads(done("demo", "-o", played[1], "--json").stdout)
    assert again == json.loads(played[0].stdout)


def test_works_where_the_output_takes_no_braille() -> None:
    assert invoke("demo", charset="ascii").code == 0


def test_a_file_in_the_way_is_kept(here: Path) -> None:
    (here / "file").write_text("mine")
    refusal("demo", "-o", "file")
    assert contents(here) == {"file": b"mine"}
