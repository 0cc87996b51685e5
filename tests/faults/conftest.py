"""A checkpoint to be damaged: the bundled network at a telling alpha, written once and copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from torch import nn

import surgeon
from surgeon.checkpoint import open_model


def converted(rewrite: str = "example-weighted:alpha=0.5") -> nn.Module:
    return surgeon.convert(open_model("digits-resnet8").model, rewrite)


@pytest.fixture(scope="session")
def _pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return surgeon.save(converted(), tmp_path_factory.mktemp("pristine") / "checkpoint")


@pytest.fixture
def checkpoint(_pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(_pristine, tmp_path / "checkpoint")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
