"""Inputs and outputs of the authors' own code, from the folder beside the project where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import safe_open
from torch import Tensor

VECTORS = Path(__file__).parents[2].parent / "shared" / "golden" / "reference.safetensors"

needs_vectors = pytest.mark.skipif(
    not VECTORS.exists(), reason=f"{VECTORS.name} is not beside the project in shared/golden"
)


def vectors(prefix: str) -> dict[str, Tensor]:
    """All tensors whose name begins so, by the rest of the name; none where the folder is not there."""
    if not VECTORS.exists():
        return {}
    with safe_open(VECTORS, "pt") as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        return {name.removeprefix(prefix): file.get_tensor(name) for name in names}
