"""`surgeon verify`: exit 0 for what is whole and true, exit 3 for everything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import surgeon
from surgeon.checkpoint.record import read_surgery
from tests.cli.running import document, done, invoke, refusal
from tests.helpers import small_resnet


@pytest.fixture
def checkpoint(here: Path) -> Path:
    done("convert", "digits-resnet8", "--bn", "example-weighted:alpha=0.5", "-o", "out")
    return here / "out"


@pytest.mark.usefixtures("checkpoint")
def test_a_whole_checkpoint() -> None:
    outcome = done("verify", "out")
    rows = [row for row in outcome.stdout.splitlines() if " ok " in row]
    assert [row.split()[1] for row in rows] == ["files", "network", "outputs", "parity"]
    assert "7 layers rewritten" in outcome.stdout
    assert outcome.stderr == ""


@pytest.mark.usefixtures("checkpoint")
def test_a_whole_checkpoint_as_json() -> None:
    told = document("verify", "out")
    assert told["passed"] is True
    assert [check["name"] for check in told["checks"]] == ["files", "network", "outputs", "parity"]
    assert all(check["passed"] for check in told["checks"])


def test_a_damaged_checkpoint(checkpoint: Path) -> None:
    (checkpoint / "config.json").unlink()
    outcome = invoke("verify", "out")
    assert outcome.code == 3
    assert "FAILED" in outcome.stdout
    assert outcome.stderr == "Error: The checkpoint failed verification: out has no config.json.\n"


def test_a_damaged_checkpoint_as_json(checkpoint: Path) -> None:
    (checkpoint / "config.json").unlink()
    outcome = invoke("verify", "out", "--json")
    assert outcome.code == 3
    assert json.loads(outcome.stdout) == {
        "checkpoint": "out",
        "passed": False,
        "checks": [{"name": "files", "passed": False, "skipped": False, "detail": "out has no config.json."}],
    }


def test_every_damage_is_told(checkpoint: Path) -> None:
    for file in ("config.json", "model.safetensors"):
        (checkpoint / file).unlink()
    told = json.loads(invoke("verify", "out", "--json").stdout)
    assert len(told["checks"]) == 2


def test_outputs_that_are_not_numbers(here: Path, weights_of: Callable[[str], Path]) -> None:
    done("convert", "test_resnet", "--weights", weights_of("test_resnet"), "--bn", "ghost", "-o", "whole")
    model = surgeon.load("whole")
    with torch.no_grad():
        model.get_submodule("fc").bias.fill_(torch.inf)
    surgeon.save(model, here / "out")
    outcome = invoke("verify", "out")
    assert outcome.code == 3
    assert "NaN or infinite" in outcome.stderr


def test_a_network_of_your_own_is_checked_by_its_files(here: Path) -> None:
    surgeon.save(surgeon.convert(small_resnet(), "ghost"), here / "own")
    assert "only your own code can build this network" in done("verify", "own").stdout


def test_an_unconverted_network_verifies(here: Path) -> None:
    surgeon.save(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), here / "plain")
    done("verify", "plain")


def test_an_empty_folder_is_no_checkpoint(here: Path) -> None:
    (here / "empty").mkdir()
    outcome = invoke("verify", "empty")
    assert outcome.code == 3
    assert "has no model.safetensors" in outcome.stderr


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_what_is_no_folder_is_wrong_usage(here: Path, name: str) -> None:
    (here / "file").write_text("mine")
    assert f"no checkpoint folder {name!r}" in refusal("verify", name)


def test_the_bundled_model_verifies() -> None:
    folder = Path(surgeon.__file__).parent / "assets" / "digits-resnet8"
    done("verify", folder)
    recipe = read_surgery(folder).base_weights.origin
    assert (folder.parent / recipe).is_file(), "where it comes from can be looked up"
