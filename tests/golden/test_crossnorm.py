"""CrossNorm against outputs of the authors' own code."""

from __future__ import annotations

import pytest
import torch

from surgeon.inserts.crossnorm.styles import Box, cross_normalise, cross_normalise_channels
from tests.golden.vectors import needs_vectors, vectors

PREFIX = "crossnorm/"
BOX = "style_box_h0_w0_h1_w1"

# Which boxes each of the authors' 2-instance outputs used.
CROPS = {
    "two_instance": (),
    "style_crop": ("style_box",),
    "content_crop": ("content_box",),
    "both_crop": ("style_box", "content_box"),
}


GOLDEN = vectors(PREFIX)

pytestmark = needs_vectors


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
