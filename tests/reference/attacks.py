"""Attacks on a linear softmax classifier, in float64, with the gradient of cross-entropy written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Loss = Callable[[Array], float]


def project(candidate: Array, image: Array, eps: float) -> Array:
    return np.minimum(np.maximum(np.minimum(np.maximum(candidate, image - eps), image + eps), 0.0), 1.0)


def cross_entropy_gradient(weight: Array, bias: Array, image: Array, label: int) -> Array:
    """Of -log p[label] for logits W x + b: W' (p - onehot)."""
    logits = weight @ image.ravel() + bias
    p = np.exp(logits - logits.max())
    p /= p.sum()
    p[label] -= 1
    return np.asarray((weight.T @ p).reshape(image.shape))


def fgsm(weight: Array, bias: Array, image: Array, label: int, eps: float) -> Array:
    return project(image + eps * np.sign(cross_entropy_gradient(weight, bias, image, label)), image, eps)


def pgd(
    weight: Array, bias: Array, image: Array, label: int, start: Array, eps: float, step: float, steps: int
) -> Array:
    """`start` is uniform between -1 and 1."""
    reached = project(image + eps * start, image, eps)
    for _ in range(steps):
        slope = cross_entropy_gradient(weight, bias, reached, label)
        reached = project(reached + step * np.sign(slope), image, eps)
    return reached


def spsa(loss: Loss, image: Array, signs: Any, eps: float, step: float, delta: float = 0.01) -> Array:
    """`signs[t][s]` is the direction of sample s in step t; Adam with its usual constants."""
    reached, m, v = image.copy(), np.zeros_like(image), np.zeros_like(image)
    for t, directions in enumerate(signs, start=1):
        slope = np.mean(
            [(loss(reached + delta * d) - loss(reached - delta * d)) / (2 * delta) * d for d in directions], axis=0
        )
        m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
        climbed = reached + step * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        reached = project(climbed, image, eps)
    return reached
