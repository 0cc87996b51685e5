"""FixMatch: what the network is sure of in a weak copy of an unlabelled image is the label of its strong copy.

K. Sohn et al., FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence, NeurIPS 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.losses.base import UNLABELLED, Copy, LossConfig, Predictions, option, register

if TYPE_CHECKING:
    from torch import Tensor


class PseudoLabelConfig(LossConfig):
    threshold: float = option(0.95, "Smallest probability for the weak copy that makes a class the label.", ge=0, le=1)
    weight: float = option(1.0, "Weight of the term.", ge=0)


def _confident(config: PseudoLabelConfig, predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Of each unlabelled image the class of its weak copy, and whether the network is sure of it; no gradient."""
    confidence, label = predictions[Copy.UNLABELLED_WEAK].logits.detach().softmax(1).max(1)
    return label, confidence >= config.threshold


def _shares(config: PseudoLabelConfig, predictions: Predictions) -> dict[str, Tensor]:
    _, confident = _confident(config, predictions)
    return {"confident pseudo-labels": confident.double().mean()}


@register(
    "pseudo-label", paper="Sohn et al., NeurIPS 2020", config=PseudoLabelConfig, copies=UNLABELLED, observe=_shares
)
def pseudo_label(config: PseudoLabelConfig, predictions: Predictions) -> Tensor:
    """FixMatch: cross-entropy of an unlabelled image's strong copy with the confident class of its weak copy."""
    label, confident = _confident(config, predictions)
    logs = predictions[Copy.UNLABELLED_STRONG].logits.log_softmax(1)
    surprise = -logs.gather(1, label[:, None])[:, 0]
    # The mean is over all images: while few are confident, the labelled ones lead.
    return config.weight * surprise.where(confident, 0).mean()
