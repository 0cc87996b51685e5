"""Pretrained weights without a network: from the hub's cache, or a sentence that says how to go on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

import surgeon
from surgeon.models.hub import not_waiting_for_hub
from tests.cli.running import document, done, invoke, refusal, run

NAME = "mobilenetv3_small_050"
HUB_ID = timm.get_pretrained_cfg(NAME).hf_hub_id


@pytest.fixture
def cache(tmp_path: Path, weights_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache as huggingface_hub lays it out, with a network that was downloaded before."""
    root = tmp_path / "hub"
    repository, commit = root / f"models--{HUB_ID.replace('/', '--')}", "0123456789abcdef0123456789abcdef01234567"
    config = {"architecture": NAME, "num_classes": 1000, "pretrained_cfg": timm.get_pretrained_cfg(NAME).to_dict()}
    files = {"model.safetensors": weights_of(NAME).read_bytes(), "config.json": json.dumps(config).encode()}
    for folder in ("blobs", "refs", f"snapshots/{commit}"):
        (repository / folder).mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    for name, content in files.items():
        blob = repository / "blobs" / hashlib.sha256(content).hexdigest()
        blob.write_bytes(content)
        (repository / "snapshots" / commit / name).symlink_to(f"../../blobs/{blob.name}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(root))
    monkeypatch.setenv("HF_HUB_CACHE", str(root))
    return root


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", [NAME, HUB_ID.removeprefix("timm/"), f"hf-hub:{HUB_ID}"])
def test_cached_weights_are_used(name: str, weights_of: Callable[[str], Path]) -> None:
    told = document("convert", name, "--bn", "example-weighted:alpha=0.1", "-o", "out")
    assert told["weights"]["origin"] == (name if ":" in name else HUB_ID.removeprefix("timm/"))
    assert told["identity_difference"] <= 1e-5
    state, expected = surgeon.load("out").state_dict(), load_file(weights_of(NAME))
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[key], expected[key]) for key in expected)


@pytest.mark.usefixtures("cache")
def test_cached_weights_are_used_by_a_process_of_its_own(here: Path) -> None:
    outcome = run("convert", NAME, "--bn", "ghost")
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout == f"{NAME}-ghost\n"
    assert outcome.stderr.startswith(f"{NAME} · weights: ")
    assert outcome.stderr.endswith("  written to:\n")  # the libraries below have nothing to add
    done("verify", here / f"{NAME}-ghost")


def assert_says_how_to_go_on(said: str, name: str) -> None:
    assert repr(name) in said
    assert "cannot be reached" in said
    assert "--weights" in said
    assert "--no-pretrained" in said


@pytest.mark.parametrize("name", ["resnet18", "resnet18.a1_in1k", "hf-hub:timm/resnet18.a1_in1k"])
@pytest.mark.parametrize("command", [["inspect"], ["convert", "--bn", "ghost"]], ids=lambda command: command[0])
def test_no_cache_and_no_network(name: str, command: list[str], here: Path) -> None:
    assert_says_how_to_go_on(refusal(*command, name, code=1), name)
    assert not list(here.iterdir())


def test_torchvision_without_network(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setattr("torch.hub.urlopen", unreachable)
    outcome = invoke("convert", "torchvision:resnet18", "--bn", "ghost")
    # torch itself says first what it downloads
    said = outcome.stderr.splitlines()[-1]
    assert outcome.code == 1
    assert_says_how_to_go_on(said, "torchvision:resnet18")
    assert not list(here.iterdir())


def test_random_weights_of_a_hub_model_need_its_config_all_the_same() -> None:
    """Advice that the user has already followed is no help."""
    said = refusal("inspect", "hf-hub:timm/resnet18.a1_in1k", "--no-pretrained", code=1)
    assert "use --no-pretrained" not in said


@pytest.mark.parametrize("name", ["resnet18.a1_in1kk", "resnet18.qqqq"])
def test_an_unknown_tag_is_no_matter_of_the_network(name: str) -> None:
    said = refusal("inspect", name)
    assert f"no pretrained weights tagged {name.partition('.')[2]!r}" in said
    assert "a1_in1k" in said


def test_an_architecture_without_published_weights() -> None:
    unpublished = next(n for n in timm.list_models("resnet*") if not timm.is_model_pretrained(n))
    said = refusal("inspect", unpublished)
    assert f"no pretrained weights for {unpublished!r}" in said
    assert "--no-pretrained" in said


@pytest.mark.parametrize("reachable", [True, False])
def test_an_unreachable_hub_is_not_waited_for(reachable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object) -> list[object]:
        if not reachable:
            raise OSError("Name or service not known")
        return []

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    monkeypatch.setattr("surgeon.models.hub.getproxies", dict)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with not_waiting_for_hub():
        assert constants.HF_HUB_OFFLINE is not reachable
    assert constants.HF_HUB_OFFLINE is False


def test_offline_is_left_alone_behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    def unresolved(*_: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unresolved)
    monkeypatch.setattr("surgeon.models.hub.getproxies", lambda: {"https": "http://proxy:3128"})
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with not_waiting_for_hub():
        assert constants.HF_HUB_OFFLINE is False
