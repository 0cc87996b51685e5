"""Every command runs in an empty folder and never reaches the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save_file

from tests.cli.hub import TOKEN, Hub, running
from tests.helpers import randomise


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, empty."""
    folder, caches = tmp_path / "here", tmp_path / "caches"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SURGEON_DEBUG", raising=False)
    for name in ("HF_HUB_CACHE", "TORCH_HOME"):
        monkeypatch.setenv(name, str(caches))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # read by the processes that tests start; this one has read it already:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(caches))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder


@pytest.fixture(scope="session")
def weights_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A weights file for a timm network in which every part of every norm layer matters."""
    folder = tmp_path_factory.mktemp("weights")

    def weights(name: str) -> Path:
        path = folder / f"{name}.safetensors"
        if not path.exists():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model = randomise(timm.create_model(name, pretrained=False))
            save_file(model.state_dict(), path, {"format": "pt"})
        return path

    return weights


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that can be reached, and somebody who is logged in."""
    with running(Hub()) as hub:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("/{repo_id}")
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + "".join(template[1:]))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield hub
