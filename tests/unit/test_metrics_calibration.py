"""Calibration metrics against their references, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from surgeon.metrics import calibration
from tests.reference import metrics

FUNCTIONS = [
    calibration.expected_calibration_error,
    calibration.rms_error,
    calibration.mad_error,
    calibration.published_rms,
    calibration.published_mad,
    calibration.area_under_response_rate_accuracy,
    calibration.soft_f1_score,
]


REFERENCES = {
    "ece": (calibration.expected_calibration_error, metrics.expected_calibration_error),
    "rms": (calibration.rms_error, metrics.rms),
    "mad": (calibration.mad_error, metrics.mad),
    "published rms": (calibration.published_rms, metrics.published_rms),
    "published mad": (calibration.published_mad, metrics.published_mad),
    "aurra": (calibration.area_under_response_rate_accuracy, metrics.aurra),
    "soft f1": (calibration.soft_f1_score, metrics.soft_f1),
}


def predictions(images: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    random = np.random.default_rng(seed)
    confidence = random.random(images)
    return confidence, random.random(images) < confidence**2


@pytest.mark.parametrize("images", [100, 199, 200, 1234])
@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference(name: str, images: int) -> None:
    confidence, correct = predictions(images)
    confidence[:3] = [0.0, 1.0, 1 / 15]
    function, reference = REFERENCES[name]
    assert function(confidence, correct) == pytest.approx(reference(confidence, correct), abs=1e-12)


def test_fewer_than_a_bin_of_images_form_one_bin() -> None:
    confidence, correct = np.array([0.9, 0.6, 0.3]), np.array([1, 0, 1])
    assert calibration.rms_error(confidence, correct) == pytest.approx(abs(0.6 - 2 / 3))
    assert calibration.mad_error(confidence, correct) == pytest.approx(abs(0.6 - 2 / 3))
    assert calibration.published_rms(confidence, correct) == 0


def test_aurra_by_hand() -> None:
    confidence, correct = np.array([0.2, 0.9, 0.5]), np.array([1, 1, 0])
    assert calibration.area_under_response_rate_accuracy(confidence, correct) == pytest.approx((1 + 1 / 2 + 2 / 3) / 3)


def test_soft_f1_of_certain_predictions_is_the_f1_of_finding_errors() -> None:
    confidence, correct = np.array([1.0, 0.0, 0.0, 1.0, 1.0]), np.array([1, 0, 1, 0, 1])
    expected = f1_score(1 - correct, 1 - confidence)
    assert calibration.soft_f1_score(confidence, correct) == pytest.approx(expected)


def test_perfect_and_certain_predictions() -> None:
    confidence, correct = np.ones(250), np.ones(250, dtype=bool)
    values = [function(confidence, correct) for function in FUNCTIONS]
    assert values == [0, 0, 0, 0, 0, 1, 1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=300))
def test_every_metric_lies_between_0_and_1(images: list[tuple[float, bool]]) -> None:
    confidence, correct = (np.array(column) for column in zip(*images, strict=True))
    for function in FUNCTIONS:
        assert -1e-12 <= function(confidence, correct) <= 1 + 1e-12
