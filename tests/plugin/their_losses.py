"""What somebody else's package adds: a loss with the labels, and a term that compares two copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.losses.base import Copies, Copy, LossConfig, OnCopies, Predictions, option, register

if TYPE_CHECKING:
    from torch import Tensor


class FocalConfig(OnCopies):
    gamma: float = option(2.0, "How little easy examples count.", ge=0)
    on: Copies | None = option(None, "Copies to average over.")


@register("their-focal", paper="They, 2024", config=FocalConfig, on_labels=True)
def their_focal(config: FocalConfig, predictions: Predictions) -> Tensor:
    """Cross-entropy in which easy examples count less."""
    found = predictions.over(config.named_copies() or predictions.labelled)
    logs = found.logits.log_softmax(1)
    return -(found.targets * (1 - logs.exp()) ** config.gamma * logs).sum(1).mean()


class GapConfig(LossConfig):
    weight: float = option(1.0, "Weight.", ge=0)


@register("their-gap", paper="", config=GapConfig, copies=(Copy.WEAK, Copy.ADVERSARIAL))
def their_gap(config: GapConfig, predictions: Predictions) -> Tensor:
    """How far probabilities of both copies are apart."""
    weak, adversarial = (predictions[copy].logits.softmax(1) for copy in (Copy.WEAK, Copy.ADVERSARIAL))
    return config.weight * (weak - adversarial).square().sum(1).mean()
