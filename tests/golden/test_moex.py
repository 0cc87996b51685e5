"""Moment exchange against outputs of the authors' own code."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from surgeon.inserts.moex.exchange import exchange_moments
from tests.golden.vectors import needs_vectors, vectors

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


GOLDEN = vectors(PREFIX)

pytestmark = needs_vectors


def test_every_case_is_covered() -> None:
    assert set(GOLDEN) == {"x", "permutation", *CASES}


@pytest.mark.parametrize("case", CASES)
def test_exchange(case: str) -> None:
    y = exchange_moments(GOLDEN["x"], GOLDEN["permutation"], **CASES[case])
    # Where few entries are positive the outputs reach 2569: there, within one step of float32.
    rtol = torch.finfo(torch.float32).eps if case == "pono_positive_only" else 0
    torch.testing.assert_close(y, GOLDEN[case], rtol=rtol, atol=1e-5)
