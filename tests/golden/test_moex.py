"""Moment exchange against outputs of the authors' own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from surgeon.inserts.moex.exchange import exchange_moments

VECTORS = Path(__file__).parents[2].parent / "shared" / "golden" / "reference.safetensors"
PREFIX = "moex/"

# How each of the authors' outputs is computed with ours.
CASES: dict[str, dict[str, Any]] = {
    "pono": {"kind": "pono"},
    "in": {"kind": "in"},
    "ln": {"kind": "ln"},
    "gn4": {"kind": "gn", "groups": 4},
    "gn-d4": {"kind": "gn", "channels_per_group": 4},
    "gpono4": {"kind": "gpono", "groups": 4},
    "pono_positive_only": {"kind": "pono", "positive_only": True},
}


def vectors() -> dict[str, Tensor]:
    if not VECTORS.exists():
        return {}
    with safe_open(VECTORS, "pt") as file:
        names = [name for name in file.keys() if name.startswith(PREFIX)]  # noqa: SIM118
        return {name.removeprefix(PREFIX): file.get_tensor(name) for name in names}


GOLDEN = vectors()

pytestmark = pytest.mark.skipif(not GOLDEN, reason=f"{VECTORS.name} is not beside the project in shared/golden")


def test_every_case_is_covered() -> None:
    assert set(GOLDEN) == {"x", "permutation", *CASES}


@pytest.mark.parametrize("case", CASES)
def test_exchange(case: str) -> None:
    y = exchange_moments(GOLDEN["x"], GOLDEN["permutation"], **CASES[case])
    # Where few entries are positive the outputs reach 2569: there, within one step of float32.
    rtol = torch.finfo(torch.float32).eps if case == "pono_positive_only" else 0
    torch.testing.assert_close(y, GOLDEN[case], rtol=rtol, atol=1e-5)
