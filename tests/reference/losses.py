"""Terms of the loss, in float64 and loops, as their papers write them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def log_softmax(row: Array) -> Array:
    top = row.max()
    return np.asarray(row - top - math.log(np.exp(row - top).sum()))


def _times(share: float, value: float) -> float:
    """0 log 0 is 0."""
    return share * value if share else 0.0


def cross_entropy(logits: Array, targets: Array) -> float:
    total = 0.0
    for row, target in zip(logits, targets, strict=True):
        total -= sum(_times(t, log) for t, log in zip(target, log_softmax(row), strict=True))
    return total / len(logits)


def smoothed(targets: Array, smoothing: float, spread: str) -> Array:
    """Each label that has gone into a target is smoothed by itself: s / C on all, or s / (C - 1) on the wrong ones."""
    classes = targets.shape[1]
    found = np.zeros_like(targets)
    for i, target in enumerate(targets):
        for label, share in enumerate(target):
            for c in range(classes):
                if spread == "all":
                    weight = (1 - smoothing) * (c == label) + smoothing / classes
                else:
                    weight = 1 - smoothing if c == label else smoothing / (classes - 1)
                found[i, c] += share * weight
    return found


def squared_length(logits: Array) -> float:
    return float(np.mean([sum(z * z for z in row) for row in logits]))


def paired(first: Array, second: Array) -> float:
    """Cross-entropy between two predicted distributions."""
    return cross_entropy(second, np.stack([np.exp(log_softmax(row)) for row in first]))


def divergence(first: Array, second: Array) -> float:
    """Kullback-Leibler, of the second from the first."""
    total = 0.0
    for one, other in zip(first, second, strict=True):
        p, q = log_softmax(one), log_softmax(other)
        total += sum(_times(math.exp(a), a - b) for a, b in zip(p, q, strict=True))
    return total / len(first)


def entropy(logits: Array) -> float:
    return paired(logits, logits)


def jensen_shannon(several: list[Array]) -> float:
    total = 0.0
    for rows in zip(*several, strict=True):
        p = np.stack([np.exp(log_softmax(row)) for row in rows])
        mean = p.mean(0)
        total += np.mean([sum(_times(a, math.log(a / m)) for a, m in zip(one, mean, strict=True) if a) for one in p])
    return total / len(several[0])


def pseudo_labelled(weak: Array, strong: Array, threshold: float) -> float:
    """FixMatch: 1/n sum of 1(max q >= t) H(argmax q, p), with q of the weak and p of the strong copy."""
    total = 0.0
    for one, other in zip(weak, strong, strict=True):
        q, log_p = np.exp(log_softmax(one)), log_softmax(other)
        if q.max() >= threshold:
            total -= log_p[int(q.argmax())]
    return total / len(weak)
