"""`surgeon inspect CKPT --data`: whether the modes of mode normalisation are used."""

from __future__ import annotations

import pytest

from tests.cli.running import document, done, refusal

DIGITS = ("--data", "digits", "--limit", 50)


@pytest.mark.parametrize("rewrite", ["mode", "mode-group"])
def test_shares_of_the_modes(rewrite: str) -> None:
    done("convert", "digits-resnet8", "--no-pretrained", "--bn", f"{rewrite}:modes=3", "-o", "out")
    found = document("inspect", "out", *DIGITS)
    assert list(found["gates"]) == [layer["name"] for layer in found["layers"]]
    for usage in found["gates"].values():
        assert len(usage["shares"]) == len(usage["largest"]) == 3
        assert sum(usage["shares"]) == pytest.approx(1)
    shown = done("inspect", "out", *DIGITS).stdout
    assert "Gates" in shown
    assert shown.count("█" * 3) >= 7 * 2


def test_without_data_no_gates_are_shown() -> None:
    assert document("inspect", "digits-resnet8")["gates"] == {}


def test_a_network_without_gates_has_none_to_show() -> None:
    assert document("inspect", "digits-resnet8", *DIGITS)["gates"] == {}
    assert "Gates" not in done("inspect", "digits-resnet8", *DIGITS).stdout


def test_refusals() -> None:
    assert "there is no --data" in refusal("inspect", "digits-resnet8", "--limit", 5)
