"""Adversarial logit pairing: an image and its adversarial copy are to have the same logits.

H. Kannan, A. Kurakin and I. Goodfellow, Adversarial Logit Pairing, 2018.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.losses.base import Copy, LossConfig, Predictions, option, register

if TYPE_CHECKING:
    from torch import Tensor


class PairingConfig(LossConfig):
    weight: float = option(0.5, "Weight of the term; 5 on CIFAR-100.", ge=0)


@register("alp", paper="Kannan et al., 2018", config=PairingConfig, copies=(Copy.WEAK, Copy.ADVERSARIAL))
def alp(config: PairingConfig, predictions: Predictions) -> Tensor:
    """Squared distance between the logits of an image and of its adversarial copy."""
    weak, adversarial = (predictions[copy].logits for copy in (Copy.WEAK, Copy.ADVERSARIAL))
    return config.weight * (weak - adversarial).square().sum(1).mean()
