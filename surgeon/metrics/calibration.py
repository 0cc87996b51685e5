"""Whether confidence can be trusted: calibration errors, AURRA and soft F1.

RMS and MAD calibration error follow the evaluation of Hendrycks et al., "Natural Adversarial
Examples", CVPR 2021: images are sorted by confidence and cut into bins of 100, the last of which
takes the rest. The published code leaves out the last bin, the most confident one, yet counts its
images in the denominator; `published_rms` and `published_mad` do the same, for comparison with
published figures. The registered metrics use every bin.

ECE is that of Guo et al., "On Calibration of Modern Neural Networks", ICML 2017: 15 bins of equal
width. MAD is the same mean absolute gap over bins with equal numbers of images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surgeon.metrics.base import register

if TYPE_CHECKING:
    from surgeon.metrics.accumulator import ImageScores

Array = NDArray[np.float64]
IMAGES_PER_BIN = 100
EQUAL_WIDTH_BINS = 15


def rms_error(confidence: Array, correct: NDArray[Any]) -> float:
    """Root mean square gap between confidence and accuracy over bins of 100 images."""
    return _root_mean_square(*_bin_gaps(confidence, correct))


def mad_error(confidence: Array, correct: NDArray[Any]) -> float:
    """Mean absolute gap between confidence and accuracy over bins of 100 images."""
    return _mean(*_bin_gaps(confidence, correct))


def published_rms(confidence: Array, correct: NDArray[Any]) -> float:
    """RMS calibration error as the published code computes it, without the most confident bin."""
    return _root_mean_square(*_without_last_gap(*_bin_gaps(confidence, correct)))


def published_mad(confidence: Array, correct: NDArray[Any]) -> float:
    """MAD calibration error as the published code computes it, without the most confident bin."""
    return _mean(*_without_last_gap(*_bin_gaps(confidence, correct)))


def expected_calibration_error(confidence: Array, correct: NDArray[Any]) -> float:
    """Mean absolute gap between confidence and accuracy over 15 bins of equal width, closed on the right."""
    edges = np.linspace(0, 1, EQUAL_WIDTH_BINS + 1)
    bins = np.searchsorted(edges[1:-1], confidence, side="left")
    surplus = np.bincount(bins, confidence - np.asarray(correct, dtype=np.float64), EQUAL_WIDTH_BINS)
    return float(np.abs(surplus).sum() / len(confidence))


def area_under_response_rate_accuracy(confidence: Array, correct: NDArray[Any]) -> float:
    """Mean of the cumulative accuracy from the most to the least confident image."""
    most_confident_first = np.argsort(-confidence, kind="stable")
    answered_correctly = np.cumsum(np.asarray(correct, dtype=np.float64)[most_confident_first])
    return float(np.mean(answered_correctly / np.arange(1, len(confidence) + 1)))


def soft_f1_score(confidence: Array, correct: NDArray[Any]) -> float:
    """F1 of finding wrong predictions by doubt (1 - confidence); 1 where there is neither doubt nor error."""
    doubt = 1 - confidence
    wrong = 1 - np.asarray(correct, dtype=np.float64)
    total = float((doubt + wrong).sum())
    return 2 * float((doubt * wrong).sum()) / total if total else 1.0


def _bin_gaps(confidence: Array, correct: NDArray[Any]) -> tuple[Array, Array]:
    """Per bin, from least to most confident: |mean confidence - accuracy|, and its share of the images."""
    order = np.argsort(confidence, kind="stable")
    starts = np.arange(max(len(confidence) // IMAGES_PER_BIN, 1)) * IMAGES_PER_BIN
    sizes = np.diff(np.append(starts, len(confidence)))
    surplus = np.add.reduceat(confidence[order] - np.asarray(correct, dtype=np.float64)[order], starts)
    return np.abs(surplus) / sizes, sizes / len(confidence)


def _without_last_gap(gaps: Array, shares: Array) -> tuple[Array, Array]:
    return gaps[:-1], shares[:-1]


def _mean(gaps: Array, shares: Array) -> float:
    return float((shares * gaps).sum())


def _root_mean_square(gaps: Array, shares: Array) -> float:
    return float(np.sqrt((shares * gaps**2).sum()))


@register("ece", higher_is_better=False)
def ece(images: ImageScores) -> float:
    """Expected calibration error: mean |confidence - accuracy| over 15 bins of equal width."""
    return expected_calibration_error(images.confidence, images.correct)


@register("rms", higher_is_better=False)
def rms(images: ImageScores) -> float:
    """Root mean square |confidence - accuracy| over bins of 100 images, sorted by confidence."""
    return rms_error(images.confidence, images.correct)


@register("mad", higher_is_better=False)
def mad(images: ImageScores) -> float:
    """Mean |confidence - accuracy| over bins of 100 images, sorted by confidence."""
    return mad_error(images.confidence, images.correct)


@register("aurra", higher_is_better=True)
def aurra(images: ImageScores) -> float:
    """Area under the response rate accuracy curve: accuracy when only confident answers are given."""
    return area_under_response_rate_accuracy(images.confidence, images.correct)


@register("soft-f1", higher_is_better=True)
def soft_f1(images: ImageScores) -> float:
    """F1 of recognising the wrong predictions by their low confidence."""
    return soft_f1_score(images.confidence, images.correct)
