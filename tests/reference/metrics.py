"""Figures of predictions, from logits (N, K) and labels (N,) in float64, image by image and bin by bin."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IMAGES_PER_BIN = 100
EQUAL_WIDTH_BINS = 15


def log_probabilities(logits: Any) -> Array:
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def predictions(logits: Any, labels: Any) -> tuple[Array, NDArray[Any]]:
    """Confidence in the predicted class, and whether it is the right one."""
    probabilities = np.exp(log_probabilities(logits))
    return probabilities.max(1), probabilities.argmax(1) == np.asarray(labels)


def accuracy(logits: Any, labels: Any) -> float:
    return float(np.mean([row.argmax() == label for row, label in zip(np.asarray(logits), labels, strict=True)]))


def top5(logits: Any, labels: Any) -> float:
    """The label is among the five largest logits."""
    rows = zip(np.asarray(logits), np.asarray(labels), strict=True)
    return float(np.mean([label in np.argsort(-row, kind="stable")[:5] for row, label in rows]))


def cross_entropy(logits: Any, labels: Any) -> float:
    return float(np.mean([-row[label] for row, label in zip(log_probabilities(logits), labels, strict=True)]))


def scaled_cross_entropy(logits: Any, labels: Any) -> float:
    """At the best temperature: golden-section search, the cross-entropy being convex in 1 / temperature."""
    logits = np.asarray(logits, np.float64)
    low, high = 1 / 10, 1 / 0.2
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if cross_entropy(logits * left, labels) < cross_entropy(logits * right, labels):
            high = right
        else:
            low = left
    return cross_entropy(logits * (low + high) / 2, labels)


def binned_error(confidence: Any, correct: Any, power: int, *, without_last: bool) -> float:
    """Sorted by confidence, bins of 100, the last takes the rest; the published code leaves out the last bin."""
    order = np.argsort(confidence, kind="stable")
    confidence, correct = np.asarray(confidence)[order], np.asarray(correct, np.float64)[order]
    edges = [IMAGES_PER_BIN * i for i in range(max(len(confidence) // IMAGES_PER_BIN, 1))] + [len(confidence)]
    total = 0.0
    for low, high in list(pairwise(edges))[: -1 if without_last else None]:
        gap = abs(confidence[low:high].mean() - correct[low:high].mean())
        total += (high - low) / len(confidence) * gap**power
    return float(total ** (1 / power))


def expected_calibration_error(confidence: Any, correct: Any) -> float:
    """15 bins of equal width, closed on the right; 0 belongs to the first."""
    confidence, correct = np.asarray(confidence), np.asarray(correct)
    total = 0.0
    for number in range(EQUAL_WIDTH_BINS):
        inside = (confidence > number / EQUAL_WIDTH_BINS) & (confidence <= (number + 1) / EQUAL_WIDTH_BINS)
        inside |= (confidence == 0) & (number == 0)
        if inside.any():
            total += inside.mean() * abs(confidence[inside].mean() - correct[inside].mean())
    return float(total)


def aurra(confidence: Any, correct: Any) -> float:
    """Mean of the cumulative accuracy from the most to the least confident image."""
    right, curve = 0, []
    for answered, index in enumerate(np.argsort(-np.asarray(confidence), kind="stable"), start=1):
        right += int(np.asarray(correct)[index])
        curve.append(right / answered)
    return float(np.mean(curve))


def soft_f1(confidence: Any, correct: Any) -> float:
    doubt, wrong = 1 - np.asarray(confidence), 1 - np.asarray(correct, np.float64)
    return float(2 * (doubt * wrong).sum() / (doubt + wrong).sum())


def rms(confidence: Any, correct: Any) -> float:
    return binned_error(confidence, correct, 2, without_last=False)


def mad(confidence: Any, correct: Any) -> float:
    return binned_error(confidence, correct, 1, without_last=False)


def published_rms(confidence: Any, correct: Any) -> float:
    return binned_error(confidence, correct, 2, without_last=True)


def published_mad(confidence: Any, correct: Any) -> float:
    return binned_error(confidence, correct, 1, without_last=True)


def _of_predictions(compute: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    return lambda logits, labels: compute(*predictions(logits, labels))


METRICS: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": accuracy,
    "top5": top5,
    "cross-entropy": cross_entropy,
    "scaled-cross-entropy": scaled_cross_entropy,
    "ece": _of_predictions(expected_calibration_error),
    "rms": _of_predictions(rms),
    "mad": _of_predictions(mad),
    "aurra": _of_predictions(aurra),
    "soft-f1": _of_predictions(soft_f1),
}
"""By the name of the registered metric, from logits and labels."""
