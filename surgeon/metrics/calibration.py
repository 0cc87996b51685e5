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

from surgeon.core.lazy import LazyModule
from surgeon.metrics.base import register
from surgeon.metrics.spread import Spread, of_absolute_values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from surgeon.metrics.accumulator import ImageScores

    Array = NDArray[np.float64]
else:
    np = LazyModule("numpy")

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
    bins = _equal_width_bins(confidence)
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


def _equal_width_bins(confidence: Array) -> NDArray[np.int64]:
    edges = np.linspace(0, 1, EQUAL_WIDTH_BINS + 1)
    return np.searchsorted(edges[1:-1], confidence, side="left")


def _equal_sized_bins(images: ImageScores) -> NDArray[np.int64]:
    """As many bins as the real images have, with the imagined ones sorted in."""
    number = max((len(images) - images.imagined) // IMAGES_PER_BIN, 1)
    bins = np.empty(len(images), np.int64)
    bins[np.argsort(images.confidence, kind="stable")] = np.arange(len(images)) * number // len(images)
    return bins


def _ece_spread(images: ImageScores) -> Spread:
    return _gap_spread(images, _equal_width_bins(images.confidence))


def _mad_spread(images: ImageScores) -> Spread:
    return _gap_spread(images, _equal_sized_bins(images))


def _gap_spread(images: ImageScores, bins: NDArray[np.int64]) -> Spread:
    """Of the mean absolute gap: to first order an image counts with its surplus of confidence, or less it."""
    surplus = images.confidence - images.correct
    means, errors = _bin_means(images, bins)
    return Spread(np.sign(means)[bins] * surplus, of_absolute_values(means, errors))


def _rms_spread(images: ImageScores) -> Spread:
    """Of the root mean square gap: an image counts with its surplus, times the gap of its bin over the root."""
    bins = _equal_sized_bins(images)
    surplus = images.confidence - images.correct
    means, errors = _bin_means(images, bins)
    shares = np.bincount(bins) / len(bins)
    square, noise = float((means**2 / shares).sum()), float((errors**2 / shares).sum())
    root = np.sqrt(square)
    # The noise adds to the square of the root, so it adds less the larger the root truly is.
    error = np.sqrt(float((4 * means**2 * errors**2 / shares**2 + 2 * errors**4 / shares**2).sum()))
    least = max(square - noise - error, 0.0)
    values = surplus * (means / shares)[bins] / root if root > 0 else np.zeros(len(bins))
    return Spread(values, float(np.sqrt(least + noise) - np.sqrt(least)))


def _bin_means(images: ImageScores, bins: NDArray[np.int64]) -> tuple[Array, Array]:
    """What each bin contributes to the mean surplus of all images, and the standard error of that.

    A bin without a mistake may yet have some to come: its variance is at least that of one right and one wrong more.
    """
    number, surplus = len(images), images.confidence - images.correct
    means, squares = (np.bincount(bins, numbers) / number for numbers in (surplus, surplus**2))
    sizes, wrong = np.bincount(bins), np.bincount(bins, ~images.correct)
    share = (wrong + 1) / (sizes + 2)
    least = sizes * share * (1 - share) / number**2
    return means, np.sqrt(np.maximum((squares - means**2) / number, least))


def _aurra_spread(images: ImageScores) -> Spread:
    """By how much the figure changes when an image is left out, for all of them at once."""
    number = len(images)
    order = np.argsort(-images.confidence, kind="stable")
    right = images.correct[order].astype(np.float64)
    ranks = np.arange(1, number + 1)
    so_far = np.cumsum(right)
    before = np.cumsum(so_far / ranks) - so_far / ranks
    # Those behind the one left out move up by a rank.
    shares, steps = so_far[1:] / ranks[:-1], 1 / ranks[:-1]
    after, later = (np.append(np.cumsum(each[::-1])[::-1], 0) for each in (shares, steps))
    without = (before + after - right * later) / (number - 1)
    whole = (so_far / ranks).mean()
    values = np.empty(number)
    values[order] = number * whole - (number - 1) * without
    return Spread(values)


def _soft_f1_spread(images: ImageScores) -> Spread:
    """By how much the figure changes when an image is left out, for all of them at once."""
    number = len(images)
    doubt, wrong = 1 - images.confidence, 1 - images.correct.astype(np.float64)
    both, either = 2 * doubt * wrong, doubt + wrong
    without = (both.sum() - both) / (either.sum() - either)
    return Spread(number * both.sum() / either.sum() - (number - 1) * without)


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


@register(
    "ece",
    higher_is_better=False,
    label="calibration error (ECE)",
    heading="ECE",
    spread=_ece_spread,
    bounds=(0, 1),
    rank=4,
    essential=True,
    paper="Guo et al., ICML 2017",
)
def ece(images: ImageScores) -> float:
    """Expected calibration error: mean |confidence - accuracy| over 15 bins of equal width."""
    return expected_calibration_error(images.confidence, images.correct)


@register(
    "rms",
    higher_is_better=False,
    label="RMS calibration error",
    heading="RMS",
    spread=_rms_spread,
    bounds=(0, 1),
    rank=5,
    paper="Hendrycks et al., CVPR 2021",
)
def rms(images: ImageScores) -> float:
    """Root mean square |confidence - accuracy| over bins of 100 images, sorted by confidence."""
    return rms_error(images.confidence, images.correct)


@register(
    "mad",
    higher_is_better=False,
    label="mean calibration error (MAD)",
    heading="MAD",
    spread=_mad_spread,
    bounds=(0, 1),
    rank=6,
    paper="Hendrycks et al., CVPR 2021",
)
def mad(images: ImageScores) -> float:
    """Mean |confidence - accuracy| over bins of 100 images, sorted by confidence."""
    return mad_error(images.confidence, images.correct)


@register(
    "aurra",
    higher_is_better=True,
    label="AURRA",
    heading="AURRA",
    spread=_aurra_spread,
    bounds=(0, 1),
    rank=7,
    paper="Hendrycks et al., CVPR 2021",
)
def aurra(images: ImageScores) -> float:
    """Area under the response rate accuracy curve: accuracy if only confident predictions are made."""
    return area_under_response_rate_accuracy(images.confidence, images.correct)


@register(
    "soft-f1",
    higher_is_better=True,
    label="soft F1",
    heading="soft F1",
    spread=_soft_f1_spread,
    bounds=(0, 1),
    rank=8,
    paper="Hendrycks et al., CVPR 2021",
)
def soft_f1(images: ImageScores) -> float:
    """F1 of detecting wrong predictions by their low confidence."""
    return soft_f1_score(images.confidence, images.correct)
