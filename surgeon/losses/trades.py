"""TRADES: accuracy on images as they are, and predictions that an attack cannot move.

H. Zhang et al., Theoretically Principled Trade-off between Robustness and Accuracy, ICML 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.losses.base import Copy, LossConfig, Predictions, expectation, option, register

if TYPE_CHECKING:
    from torch import Tensor


class TradesConfig(LossConfig):
    beta: float = option(6.0, "Weight of the term: 1 favours accuracy, 6 robustness.", ge=0)


@register(
    "trades",
    paper="Zhang et al., ICML 2019",
    config=TradesConfig,
    copies=(Copy.WEAK, Copy.ADVERSARIAL),
    labels_on=Copy.WEAK,
    attacks_predictions=True,
)
def trades(config: TradesConfig, predictions: Predictions) -> Tensor:
    """KL divergence between the predictions for an image and for its adversarial copy."""
    weak, adversarial = (predictions[copy].logits.log_softmax(1) for copy in (Copy.WEAK, Copy.ADVERSARIAL))
    return config.beta * expectation(weak.exp(), weak - adversarial)
