"""Cleans up behind every architecture."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _remove_checkpoint(tmp_path: Path) -> Iterator[None]:
    """Hundreds of checkpoints would fill the disk."""
    yield
    shutil.rmtree(tmp_path, ignore_errors=True)
