"""The published form of SelfNorm against outputs of the authors' own code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from surgeon.inserts.selfnorm.layer import SelfNorm

VECTORS = Path(__file__).parents[2].parent / "shared" / "golden" / "reference.safetensors"


def vectors(prefix: str) -> dict[str, Tensor]:
    if not VECTORS.exists():
        return {}
    with safe_open(VECTORS, "pt") as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        return {name.removeprefix(prefix): file.get_tensor(name) for name in names}


GOLDEN = {case: vectors(f"selfnorm_{case}/") for case in ("one", "two")}

pytestmark = pytest.mark.skipif(
    not all(GOLDEN.values()), reason=f"{VECTORS.name} is not beside the project in shared/golden"
)


@pytest.mark.parametrize("case", GOLDEN)
def test_evaluation(case: str) -> None:
    golden = GOLDEN[case]
    layer = SelfNorm(golden["x"].shape[1], two_sided=case == "two", form="published").eval()
    state = {name.removeprefix("state/"): t for name, t in golden.items() if name.startswith("state/")}
    layer.load_state_dict(state)
    torch.testing.assert_close(layer(golden["x"]).detach(), golden["eval"], rtol=0, atol=1e-5)
