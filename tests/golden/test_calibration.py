"""Calibration metrics against outputs of the published evaluation code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open

from surgeon.metrics import calibration

VECTORS = Path(__file__).parents[2].parent / "shared" / "golden" / "reference.safetensors"

pytestmark = pytest.mark.skipif(
    not VECTORS.exists(), reason=f"{VECTORS.name} is not beside the project in shared/golden"
)


def vector(name: str) -> NDArray[Any]:
    with safe_open(VECTORS, "np") as file:
        return np.asarray(file.get_tensor(f"calibration/{name}"))


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
