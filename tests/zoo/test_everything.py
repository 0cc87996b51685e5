"""Every BatchNorm architecture of timm and torchvision. Takes an hour on 2 cores: `make test-all`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zoo.checks import all_names, check_architecture, has_batch_norm


@pytest.mark.zoo
@pytest.mark.parametrize("name", all_names())
def test_architecture(name: str, tmp_path: Path) -> None:
    if not has_batch_norm(name):
        pytest.skip("no BatchNorm")
    check_architecture(name, tmp_path / "checkpoint")
