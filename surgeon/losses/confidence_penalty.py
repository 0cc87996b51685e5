"""Predictions that are not too sure: a reward for their entropy.

G. Pereyra et al., Regularizing Neural Networks by Penalizing Confident Output Distributions, 2017.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.losses.base import Copies, OnCopies, Predictions, expectation, option, register

if TYPE_CHECKING:
    from torch import Tensor


class ConfidencePenaltyConfig(OnCopies):
    beta: float = option(0.1, "Weight of the term.", ge=0)
    on: Copies | None = option(None, "Copies to average over. Default: those whose labels count.")


@register("confidence-penalty", paper="Pereyra et al., 2017", config=ConfidencePenaltyConfig)
def confidence_penalty(config: ConfidencePenaltyConfig, predictions: Predictions) -> Tensor:
    """Negative entropy of the predictions, which penalises confident ones."""
    logs = predictions.over(config.named_copies() or predictions.labelled).logits.log_softmax(1)
    return config.beta * expectation(logs.exp(), logs)
