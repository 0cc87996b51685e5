"""Terms of the loss from a package of others: listed, checked and trained with as ours, without an edit here."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from surgeon.losses.base import losses
from tests.cli.running import document, refusal
from tests.cli.test_finetune import QUICK
from tests.cli.test_plugins import install
from tests.contract.test_loss_contract import check_term

SOURCE = Path(__file__).parents[1] / "plugin" / "their_losses.py"
NAMES = ("their-focal", "their-gap")


@pytest.fixture
def here_too() -> Iterator[None]:
    """Their terms in this process, for a while."""
    list(losses)
    runpy.run_path(str(SOURCE))
    yield
    for name in NAMES:
        losses.forget(name)


def test_they_are_listed(tmp_path: Path) -> None:
    surgeon = install(tmp_path / "packages", "their-losses", SOURCE.read_text("utf-8"), ("surgeon.losses",))
    listed = {one["name"]: one for one in json.loads(surgeon("ls", "losses", "--json").stdout)}
    assert listed["their-gap"]["copies"] == "weak + adversarial"
    assert [option["name"] for option in listed["their-focal"]["options"]] == ["gamma", "on"]


@pytest.mark.usefixtures("here_too")
@pytest.mark.parametrize("name", NAMES)
def test_they_keep_the_promises_of_ours(name: str) -> None:
    check_term(name)


@pytest.mark.usefixtures("here_too")
def test_a_network_is_trained_with_them(tmp_path: Path) -> None:
    options = ("--loss", "their-focal:gamma=1,on=weak+adversarial", "--loss", "their-gap", "--attack", "fgsm:eps=0.1")
    told = document(*QUICK, "--no-pretrained", "--lr", 0.05, *options, "-o", tmp_path / "run")
    assert told["recipe"]["loss"] == ["their-focal:gamma=1.0,on=weak+adversarial", "their-gap"], "labels are looked at"
    assert told["epochs"][1]["loss"] < told["epochs"][0]["loss"]
    assert "needs adversarial copies" in refusal(*QUICK, "--loss", "their-gap", "-o", tmp_path / "other")
    assert "has no option 'gama'" in refusal(*QUICK, "--loss", "their-focal:gama=1", "-o", tmp_path / "other")
    assert not (tmp_path / "other").exists()
