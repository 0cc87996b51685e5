"""Calibration metrics against outputs of the published evaluation code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from numpy.typing import NDArray

from surgeon.metrics import calibration
from tests.golden.vectors import needs_vectors, vectors

pytestmark = needs_vectors


GOLDEN = vectors("calibration/")


def vector(name: str) -> NDArray[Any]:
    return GOLDEN[name].numpy()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("rms", calibration.published_rms),
        ("mad", calibration.published_mad),
        ("aurra", calibration.area_under_response_rate_accuracy),
        ("soft_f1", calibration.soft_f1_score),
    ],
)
def test_published_figures(name: str, function: Callable[[Any, Any], float]) -> None:
    assert function(vector("confidence"), vector("correct")) == pytest.approx(float(vector(name)), abs=1e-9)


def test_the_complete_errors_count_the_bin_that_was_published_without() -> None:
    confidence, correct = vector("confidence"), vector("correct")
    assert calibration.rms_error(confidence, correct) > calibration.published_rms(confidence, correct)
    assert calibration.mad_error(confidence, correct) > calibration.published_mad(confidence, correct)
