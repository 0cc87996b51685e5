"""Pairing of predictions, decoupled from the size of logits.

C. Summers and M. Dinneen, Improved Adversarial Robustness via Logit Regularization Methods, 2019: logit pairing also
squeezes logits. Here predicted distributions are paired, and squeezing is a term of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.losses.base import Copy, LossConfig, Predictions, expectation, option, register

if TYPE_CHECKING:
    from torch import Tensor


class DecoupledPairingConfig(LossConfig):
    ratio: float = option(0.125, "Value of the term, as a share of the cross-entropy with the labels.", ge=0)


@register(
    "decoupled-pairing",
    paper="Summers & Dinneen, 2019",
    config=DecoupledPairingConfig,
    copies=(Copy.WEAK, Copy.ADVERSARIAL),
)
def decoupled_pairing(config: DecoupledPairingConfig, predictions: Predictions) -> Tensor:
    """Cross-entropy between the predictions for an image and its adversarial copy, scaled to a fixed share."""
    import torch

    weak, adversarial = (predictions[copy].logits.log_softmax(1) for copy in (Copy.WEAK, Copy.ADVERSARIAL))
    distance = -expectation(weak.exp(), adversarial)
    assert predictions.label_loss is not None
    # Only a factor: its gradient would undo the pairing. Where both predictions are certain and equal it is 0 / 0, and
    # what is left of a distance below the precision of probabilities is rounding, which must not be blown up.
    scale = predictions.label_loss / distance.detach().clamp_min(torch.finfo(distance.dtype).eps)
    return config.ratio * scale * distance
