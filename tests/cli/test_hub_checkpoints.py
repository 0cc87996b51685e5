"""Checkpoints on the hub: `hf-hub:OWNER/NAME` is the converted network, not what timm would make of its weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from huggingface_hub import constants, hf_hub_download

import surgeon
from tests.cli.hub import COMMIT, Hub
from tests.cli.running import contents, document, done, invoke, refusal

NAME = "hf-hub:me/net"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a timm network: timm could open it too, without its surgery."""
    folder = tmp_path_factory.mktemp("written") / "net"
    done("convert", "test_resnet", "--no-pretrained", "--bn", "example-weighted:alpha=0.5", "-o", folder)
    return folder


@pytest.fixture
def pushed(written: Path, hub: Hub) -> Path:  # noqa: ARG001
    done("push", written, "me/net")
    return written


def same_outputs(folder: Path) -> bool:
    x = torch.randn(3, 3, 160, 160)
    return torch.equal(surgeon.load(NAME)(x), surgeon.load(folder)(x))


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def test_figures_are_those_of_the_folder(hub: Hub) -> None:
    done("convert", "digits-resnet8", "--bn", "example-weighted:alpha=0.5", "-o", "net")
    done("push", "net", "me/net")
    here, there = (document("eval", name, "--data", "digits") for name in ("net", NAME))
    assert there["model"] == NAME
    assert there["rewrites"] == here["rewrites"] == "ghost:size=4 + example-weighted:alpha=0.5"
    assert there["metrics"] == here["metrics"]
    assert f"GET /me/net/resolve/{COMMIT}/model.safetensors" in hub.requests  # of the commit that the record is of


def test_the_surgery_comes_with_it_and_stays_in_the_cache(pushed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_outputs(pushed)
    go_offline(monkeypatch)
    assert same_outputs(pushed)
    assert "example-weighted:alpha=0.5" in done("inspect", NAME).stdout + done("inspect", NAME).stderr
    assert "ok" in done("verify", NAME).stdout


@pytest.mark.usefixtures("hub")
def test_a_branch(written: Path) -> None:
    done("push", written, "me/net", "--revision", "other")
    x = torch.randn(1, 3, 160, 160)
    assert torch.equal(surgeon.load(f"{NAME}@other")(x), surgeon.load(written)(x))
    assert "no such revision" in refusal("inspect", f"{NAME}@nowhere")


@pytest.mark.usefixtures("pushed")
@pytest.mark.parametrize("option", [["--no-pretrained"], ["--num-classes", "3"]])
def test_a_checkpoint_has_its_own_weights(option: list[str]) -> None:
    assert f"{option[0]} does not go with a checkpoint" in refusal("inspect", NAME, *option)


def test_offline_without_a_cache() -> None:
    said = refusal("inspect", NAME, code=1)
    assert "'hf-hub:me/net'" in said
    assert "cannot be reached" in said


@pytest.mark.usefixtures("pushed")
def test_what_timm_has_cached_is_not_taken_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    timm.create_model(NAME, pretrained=True)
    go_offline(monkeypatch)
    assert "its surgery.json is not beside them" in refusal("inspect", NAME, code=1)


@pytest.mark.usefixtures("pushed")
def test_half_a_cache_is_not_taken_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    hf_hub_download("me/net", "surgery.json")
    go_offline(monkeypatch)
    assert "its model.safetensors is not there" in refusal("inspect", NAME, code=1)


def test_a_plain_network_opens_as_before(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    done("convert", "test_resnet", "--no-pretrained", "--bn", "ghost", "-o", "ghost")
    done("export", "ghost", "--to", "timm", "-o", "plain")
    hub.files = contents(Path("plain"))
    told = document("convert", NAME, "--bn", "ghost", "-o", "again")
    assert told["weights"]["origin"] == NAME
    x = torch.randn(1, 3, 160, 160)
    expected = surgeon.load("ghost")(x)
    assert torch.equal(surgeon.load("again")(x), expected)
    for name in (NAME, f"local-dir:{Path('plain').resolve()}"):  # and in timm itself
        assert torch.allclose(timm.create_model(name, pretrained=True).eval()(x), expected, atol=1e-5)
    assert "not a surgeon checkpoint" in refusal("verify", NAME)
    go_offline(monkeypatch)
    done("inspect", NAME)


@pytest.mark.usefixtures("hub")
def test_what_is_not_on_the_hub() -> None:
    assert "There is no model 'hf-hub:me/nothing' on the hub" in refusal("inspect", "hf-hub:me/nothing")
    assert "names no repository" in refusal("inspect", "hf-hub:me/a/b/c")


@pytest.mark.usefixtures("pushed")
def test_a_damaged_download_is_refused(hub: Hub) -> None:
    hub.files["config.json"] = b"{}"
    outcome = invoke("inspect", NAME)
    assert outcome.code == 2
    assert "config.json" in outcome.stderr
