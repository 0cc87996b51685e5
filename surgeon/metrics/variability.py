"""How much networks vary that were trained alike: in accuracy, in what they say of each image, and inside.

C. Summers and M. Dinneen, Nondeterminism and Instability in Neural Network Optimization, ICML 2021. Every figure but
the standard deviations is a mean over all pairs of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RESAMPLES = 10_000


@dataclass(frozen=True)
class Deviation:
    """A standard deviation over runs, and its standard error by the bootstrap."""

    value: float
    error: float


@dataclass(frozen=True)
class Variability:
    """How much the networks of several runs vary.

    Args:
        runs: How many there are.
        accuracy: In percentage points.
        cross_entropy: In nats.
        disagreement: Percentage of images for which two runs name different classes.
        correlation: Spearman's, of the logits of two runs over all images and classes.
        ensembling: Accuracy of the averaged probabilities of two runs minus their mean accuracy, in points.
        similarity: Linear CKA of the features of two runs; None if they were not given.
    """

    runs: int
    accuracy: Deviation
    cross_entropy: Deviation
    disagreement: float
    correlation: float
    ensembling: float
    similarity: float | None = None


def variability(
    logits: Sequence[Array], labels: NDArray[np.int64], features: Sequence[Array] | None = None, seed: int = 0
) -> Variability:
    """Compare runs by what their networks say of the same images.

    Args:
        logits: Of each run, (images, classes).
        labels: The class of each image.
        features: Of each run, (images, channels): what its head sees.
        seed: Of the bootstrap.
    """
    if len(logits) < 2:
        raise ValueError(f"Variability needs two runs or more, not {len(logits)}")
    log_probabilities = [_log_softmax(np.asarray(one, np.float64)) for one in logits]
    right = np.array([(one.argmax(1) == labels).mean() for one in log_probabilities])
    losses = np.array([-one[np.arange(len(labels)), labels].mean() for one in log_probabilities])
    pairs = list(combinations(range(len(logits)), 2))
    classes = [one.argmax(1) for one in log_probabilities]
    ranks = [_ranks(np.asarray(one, np.float64).ravel()) for one in logits]
    together = [np.logaddexp(log_probabilities[i], log_probabilities[j]).argmax(1) for i, j in pairs]
    gains = [(one == labels).mean() - right[[i, j]].mean() for one, (i, j) in zip(together, pairs, strict=True)]
    return Variability(
        runs=len(logits),
        accuracy=_deviation(100 * right, seed),
        cross_entropy=_deviation(losses, seed),
        disagreement=float(100 * np.mean([(classes[i] != classes[j]).mean() for i, j in pairs])),
        correlation=float(np.mean([_correlation(ranks[i], ranks[j]) for i, j in pairs])),
        ensembling=float(100 * np.mean(gains)),
        similarity=(
            float(np.mean([linear_cka(features[i], features[j]) for i, j in pairs])) if features is not None else None
        ),
    )


def linear_cka(one: Array, other: Array) -> float:
    """How similar two representations of the same images are: 1 for equal ones, up to rotation and scale.

    S. Kornblith et al., Similarity of Neural Network Representations Revisited, ICML 2019.
    """
    one, other = (np.asarray(each, np.float64) - np.mean(each, 0, dtype=np.float64) for each in (one, other))
    shared = np.square(one.T @ other).sum()
    own = np.sqrt(np.square(one.T @ one).sum() * np.square(other.T @ other).sum())
    return float(shared / own) if own else float("nan")


def _deviation(values: Array, seed: int) -> Deviation:
    draws = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    return Deviation(float(values.std()), float(values[draws].std(1).std()))


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return found


def _ranks(values: Array) -> Array:
    """From 1 on; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    ranks: Array = (last - (counts - 1) / 2)[inverse]
    return ranks


def _correlation(one: Array, other: Array) -> float:
    one, other = one - one.mean(), other - other.mean()
    spread = np.sqrt(np.square(one).sum() * np.square(other).sum())
    return float((one * other).sum() / spread) if spread else float("nan")
