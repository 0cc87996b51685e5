"""Figures of predicted masks, from logits (N, K, H, W) and masks (N, H, W) in float64, pixel by pixel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def labelled_pixels(logits: Any, masks: Any, void: int) -> tuple[Array, NDArray[Any]]:
    """Every pixel with a class as a row of logits, and its class."""
    logits, masks = np.asarray(logits, np.float64), np.asarray(masks)
    rows, classes = [], []
    for image, mask in zip(logits, masks, strict=True):
        for row in range(mask.shape[0]):
            for column in range(mask.shape[1]):
                if mask[row, column] != void:
                    rows.append(image[:, row, column])
                    classes.append(mask[row, column])
    return np.array(rows).reshape(-1, logits.shape[1]), np.array(classes, dtype=np.int64)


def iou_of_classes(logits: Any, masks: Any, void: int) -> list[float]:
    """Of each class; NaN where no pixel is of it."""
    rows, classes = labelled_pixels(logits, masks, void)
    answers = rows.argmax(1) if len(rows) else np.zeros(0, np.int64)
    found = []
    for number in range(np.asarray(logits).shape[1]):
        of_it, taken_for_it = classes == number, answers == number
        either = int((of_it | taken_for_it).sum())
        found.append(int((of_it & taken_for_it).sum()) / either if of_it.any() else math.nan)
    return found


def mean_iou(logits: Any, masks: Any, void: int) -> float:
    return float(np.nanmean(iou_of_classes(logits, masks, void)))


def pixel_accuracy(logits: Any, masks: Any, void: int) -> float:
    rows, classes = labelled_pixels(logits, masks, void)
    return float((rows.argmax(1) == classes).mean())


def log_probabilities(rows: Array) -> Array:
    shifted = rows - rows.max(1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return found


def cross_entropy(logits: Any, masks: Any, void: int, temperature: float = 1.0) -> float:
    rows, classes = labelled_pixels(logits, masks, void)
    return float(-log_probabilities(rows / temperature)[np.arange(len(rows)), classes].mean())


def scaled_cross_entropy(logits: Any, masks: Any, void: int) -> float:
    """The lowest over a fine grid of temperatures."""
    return min(cross_entropy(logits, masks, void, t) for t in np.geomspace(0.2, 10, 801))


def calibration_error(logits: Any, masks: Any, void: int, bins: int = 15) -> float:
    """Mean |confidence - accuracy| over bins of equal width, closed on the right, of pixels."""
    rows, classes = labelled_pixels(logits, masks, void)
    confidence, right = np.exp(log_probabilities(rows)).max(1), rows.argmax(1) == classes
    total = 0.0
    for number in range(bins):
        inside = (confidence > number / bins) & (confidence <= (number + 1) / bins)
        if inside.any():
            total += abs(confidence[inside].mean() - right[inside].mean()) * inside.sum()
    return float(total / len(rows))


MASK_METRICS = {
    "iou": mean_iou,
    "accuracy": pixel_accuracy,
    "cross-entropy": cross_entropy,
    "scaled-cross-entropy": scaled_cross_entropy,
    "ece": calibration_error,
}
"""By the name of the registered metric, from logits, masks and the value of void."""


def bootstrap(logits: Any, masks: Any, void: int, draws: int, seed: int) -> tuple[float, float]:
    """The mean IoU's percentile interval when images are drawn with replacement, classes as in the whole set."""
    random = np.random.default_rng(seed)
    logits, masks = np.asarray(logits), np.asarray(masks)
    classes = logits.shape[1]
    answers = logits.argmax(1)
    known = masks != void
    counts = np.zeros((2, len(masks), classes))
    for image in range(len(masks)):
        for number in range(classes):
            of_it, taken = (masks[image] == number) & known[image], (answers[image] == number) & known[image]
            counts[:, image, number] = (of_it & taken).sum(), (of_it | taken).sum()
    shown = [number for number in range(classes) if ((masks == number) & known).any()]
    found = []
    for _ in range(draws):
        both, either = counts[:, random.integers(0, len(masks), len(masks))].sum(1)
        found.append(np.mean([both[c] / either[c] for c in shown if either[c]]))
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)
