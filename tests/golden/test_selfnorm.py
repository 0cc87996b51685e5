"""The published form of SelfNorm against outputs of the authors' own code."""

from __future__ import annotations

import pytest
import torch

from surgeon.inserts.selfnorm.layer import SelfNorm
from tests.golden.vectors import needs_vectors, vectors

GOLDEN = {case: vectors(f"selfnorm_{case}/") for case in ("one", "two")}

pytestmark = needs_vectors


@pytest.mark.parametrize("case", GOLDEN)
def test_evaluation(case: str) -> None:
    golden = GOLDEN[case]
    layer = SelfNorm(golden["x"].shape[1], two_sided=case == "two", form="published").eval()
    state = {name.removeprefix("state/"): t for name, t in golden.items() if name.startswith("state/")}
    layer.load_state_dict(state)
    torch.testing.assert_close(layer(golden["x"]).detach(), golden["eval"], rtol=0, atol=1e-5)
