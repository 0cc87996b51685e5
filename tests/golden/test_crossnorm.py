"""CrossNorm against outputs of the authors' own code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from surgeon.inserts.crossnorm.styles import Box, cross_normalise, cross_normalise_channels

VECTORS = Path(__file__).parents[2].parent / "shared" / "golden" / "reference.safetensors"
PREFIX = "crossnorm/"
BOX = "style_box_h0_w0_h1_w1"

# Which boxes each of the authors' 2-instance outputs used.
CROPS = {
    "two_instance": (),
    "style_crop": ("style_box",),
    "content_crop": ("content_box",),
    "both_crop": ("style_box", "content_box"),
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
    assert set(GOLDEN) == {"x", "permutation", "channel_permutation", BOX, "one_instance", *CROPS}


@pytest.mark.parametrize("case", CROPS)
def test_two_instances(case: str) -> None:
    top, left, bottom, right = GOLDEN[BOX].tolist()
    box: Box = (top, left, bottom, right)
    y = cross_normalise(GOLDEN["x"], GOLDEN["permutation"], **dict.fromkeys(CROPS[case], box))
    torch.testing.assert_close(y, GOLDEN[case], rtol=0, atol=1e-5)


def test_one_instance() -> None:
    y = cross_normalise_channels(GOLDEN["x"], GOLDEN["channel_permutation"])
    torch.testing.assert_close(y, GOLDEN["one_instance"], rtol=0, atol=1e-5)
