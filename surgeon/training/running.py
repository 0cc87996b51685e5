"""Sums over the steps of an epoch, of which its figures are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from surgeon.training.images import TrainingBatch
from surgeon.training.objective import Outcome


@dataclass
class Running:
    """Sums over the steps of an epoch so far."""

    loss: float = 0.0
    correct: float = 0.0
    examples: float = 0.0
    """Predictions: a step may take several copies of an image."""
    images: float = 0.0
    seconds: float = 0.0
    left_out: float = 0.0
    steps: int = 0
    shares: dict[str, float] = field(default_factory=dict)
    """What terms of the loss tell besides, summed up over the steps."""
    backbone_rates: list[float] = field(default_factory=list)
    head_rates: list[float] = field(default_factory=list)

    def add_rates(self, backbone: float | None, head: float | None) -> None:
        self.backbone_rates += [] if backbone is None else [backbone]
        self.head_rates += [] if head is None else [head]

    def add(self, loss: float, outcomes: Sequence[Outcome], batch: TrainingBatch, seconds: float) -> None:
        examples = sum(outcome.examples for outcome in outcomes)
        self.images += batch.images
        self.left_out += batch.left_out
        self.steps += 1
        for outcome in outcomes:
            for name, share in outcome.shares.items():
                self.shares[name] = self.shares.get(name, 0.0) + float(share) / len(outcomes)
        self.loss += loss * examples
        self.correct += float(sum(outcome.correct for outcome in outcomes))
        self.examples += examples
        self.seconds += seconds
