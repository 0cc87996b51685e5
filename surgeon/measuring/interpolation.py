"""Values of a smooth axis that need not be computed: their logits are interpolated, image by image.

As alpha grows, the logits of an image change smoothly. The polynomial through those at a few values gives the rest,
hardly any prediction of which differs from the computed one. A race uses that to see which values are worth computing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from surgeon.measuring.axes import Axis, Value
from surgeon.metrics.pooling import AnyScores
from surgeon.problems import CLASSIFICATION

NODES = (0.0, 0.5, 1.0)
CHECKS = (0.2, 0.75)
"""Places within the swept range. Nodes are computed, and so is the original; checks tell whether the rest can be."""
FEWEST_VALUES = 10
"""With fewer there is little to save."""
MOST_DISAGREEMENT = 0.05
MOST_ERROR = 0.25


class InterpolatedAxis:
    """An axis of which only the nodes are computed."""

    def __init__(self, axis: Axis, nodes: Sequence[float]) -> None:
        self.axis, self.nodes = axis, tuple(nodes)
        self.name, self.original = axis.name, axis.original

    def logits(self, images: Tensor, values: Sequence[Value]) -> list[Tensor]:
        """Computed at the nodes, interpolated at all other values."""
        computed = [CLASSIFICATION.logits(answer, images) for answer in self.axis.logits(images, self.nodes)]
        at_nodes = dict(zip(self.nodes, computed, strict=True))
        stacked = torch.stack(computed).float()
        wanted = [float(cast("float", value)) for value in values]
        weights = torch.from_numpy(lagrange(self.nodes, wanted)).to(stacked)
        between = torch.tensordot(weights, stacked, dims=1)
        return [at_nodes.get(value, logits) for value, logits in zip(wanted, between, strict=True)]

    def passes(self, values: int) -> int:  # noqa: ARG002
        """How often images go through the network, whatever the number of values."""
        return len(self.nodes)

    def set(self, value: Value) -> None:
        self.axis.set(value)

    def restore(self) -> None:
        self.axis.restore()


def lagrange(nodes: Sequence[float], values: Sequence[float]) -> np.ndarray:
    """The weight of each node in the polynomial through all of them, at each value: (values, nodes)."""
    at = np.asarray(values, np.float64)
    weights = np.ones((len(at), len(nodes)))
    for place, node in enumerate(nodes):
        for other in (*nodes[:place], *nodes[place + 1 :]):
            weights[:, place] *= (at - other) / (node - other)
    return weights


def nodes_and_checks(values: Sequence[float], original: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Which of at least `FEWEST_VALUES` are computed, and which others check the interpolation."""
    low, high = min(values), max(values)

    def nearest(share: float, among: Sequence[float]) -> float:
        return min(among, key=lambda value: abs(value - low - share * (high - low)))

    nodes = tuple(sorted({original, *(nearest(share, values) for share in NODES)}))
    others = [value for value in values if value not in nodes]
    return nodes, tuple(sorted({nearest(share, others) for share in CHECKS}))


@dataclass(frozen=True)
class Agreement:
    """How far interpolated predictions are from computed ones of the same images."""

    images: int
    disagreement: float
    """The share of predicted classes that differ."""
    error: float
    """Of the cross-entropy of an image, relative to how much the swept range changes it (root mean squares)."""

    @property
    def good(self) -> bool:
        """Whether interpolated predictions can be trusted."""
        return self.disagreement <= MOST_DISAGREEMENT and self.error <= MOST_ERROR

    @classmethod
    def of(cls, interpolated: AnyScores, computed: AnyScores, ends: tuple[AnyScores, AnyScores]) -> Agreement:
        """Of one value, on those images that were computed; `ends` are the scores of the original and the far end."""
        real = computed.images()
        parts = [scores.images() for scores in (interpolated, *ends)]
        estimate, first, last = (part.only(np.isin(part.indices, real.indices)) for part in parts)
        if any(part.nan.any() for part in (real, estimate, first, last)):
            return cls(len(real), 1.0, float("inf"))
        wrong = _root_mean_square(estimate.cross_entropy - real.cross_entropy)
        change = _root_mean_square(last.cross_entropy - first.cross_entropy)
        return cls(
            len(real),
            float((estimate.predicted != real.predicted).mean()),
            wrong / change if change > _NEGLIGIBLE else float(wrong > _NEGLIGIBLE),
        )


_NEGLIGIBLE = 1e-3
"""Nats: less is no change worth speaking of."""


def _root_mean_square(numbers: np.ndarray) -> float:
    return float(np.sqrt(np.square(numbers).mean()))
