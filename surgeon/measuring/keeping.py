"""What is kept of predictions: scores per sample, or the logits themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from surgeon.metrics import Scores

WAITING, PREDICTING, SCORING, REST = "waiting for images", "predicting", "scoring", "other"
"""What takes time."""
LOGITS_UNDER = "logits under "
"""Before the name of a condition: what a file calls the logits under it."""


class Kept(Protocol):
    """What one variant has predicted so far. Shares of several processes are merged."""

    def update(self, logits: Tensor, labels: Tensor, indices: Any, /) -> None:
        """Take in the predictions of a batch."""

    def merge(self, other: Self, /) -> Self:
        """Both, as if one process had seen all samples."""

    def __len__(self) -> int:
        """Of how many samples."""


def only_scores(variant: str) -> Scores:  # noqa: ARG001
    """Scores alone, of any variant."""
    return Scores()


class Logits:
    """The logits of every sample, with labels and indices."""

    def __init__(self) -> None:
        self._batches: list[tuple[Tensor, Tensor, Tensor]] = []

    def update(self, logits: Tensor, labels: Tensor, indices: Any) -> None:
        self._batches.append((logits, labels, torch.as_tensor(indices)))

    def merge(self, other: Logits) -> Logits:
        merged = Logits()
        merged._batches = [*self._batches, *other._batches]
        return merged

    def __len__(self) -> int:
        return sum(len(labels) for _, labels, _ in self._batches)

    def in_order(self) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (samples x classes), labels and indices, in the order of the data whoever has predicted them."""
        logits, labels, indices = map(torch.cat, zip(*self._batches, strict=True))
        order = indices.argsort()
        return logits[order], labels[order], indices[order]


@dataclass(frozen=True)
class ScoresAndLogits:
    """Scores, and the logits too where they are wanted."""

    scores: Scores = field(default_factory=Scores)
    logits: Logits | None = None

    def update(self, logits: Tensor, labels: Tensor, indices: Any) -> None:
        self.scores.update(logits, labels, indices)
        if self.logits is not None:
            self.logits.update(logits, labels, indices)

    def merge(self, other: ScoresAndLogits) -> ScoresAndLogits:
        both = self.logits.merge(other.logits) if self.logits is not None and other.logits is not None else None
        return ScoresAndLogits(self.scores.merge(other.scores), both)

    def __len__(self) -> int:
        return len(self.scores)


class OnlyLogits(ScoresAndLogits):
    """No scores, for what answers with anything but classes; its answers are kept as logits are."""

    def update(self, logits: Tensor, labels: Tensor, indices: Any) -> None:
        self.answers.update(logits, labels, indices)

    def merge(self, other: ScoresAndLogits) -> OnlyLogits:
        return OnlyLogits(logits=self.answers.merge(other.logits or Logits()))

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def answers(self) -> Logits:
        assert self.logits is not None
        return self.logits


K = TypeVar("K", bound=Kept)


@dataclass(frozen=True)
class Scored(Generic[K]):
    """What some batches gave: what is kept of each variant, samples that were left out, and seconds of prediction."""

    kept: dict[str, K]
    bad: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Of each variant, without what all have in common; those that predict together share them equally."""
    waiting: float = 0.0
    """Seconds of waiting for images to be read and decoded."""
    scoring: float = 0.0
    """Seconds of prediction that went into scores."""
    elapsed: float = 0.0
    """From the beginning to the end, of all variants, decoding included."""

    @property
    def spent(self) -> dict[str, float]:
        """Seconds, by what they went into."""
        return {WAITING: self.waiting, PREDICTING: sum(self.seconds.values()) - self.scoring, SCORING: self.scoring}

    def seconds_alone(self, name: str) -> float:
        """What a variant would have taken without the others."""
        return self.elapsed - sum(own for other, own in self.seconds.items() if other != name)

    def joined(self, other: Scored[K]) -> Scored[K]:
        """Both, as if one process had computed all; it took as long as the slower one."""
        return Scored(
            {name: mine.merge(other.kept[name]) for name, mine in self.kept.items()},
            self.bad + other.bad,
            {name: max(mine, other.seconds[name]) for name, mine in self.seconds.items()},
            max(self.waiting, other.waiting),
            max(self.scoring, other.scoring),
        )
