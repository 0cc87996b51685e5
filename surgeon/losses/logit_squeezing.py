"""Small logits: a penalty on their length.

H. Kannan, A. Kurakin and I. Goodfellow, Adversarial Logit Pairing, 2018; C. Summers and M. Dinneen, Improved
Adversarial Robustness via Logit Regularization Methods, 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.losses.base import Copies, OnCopies, Predictions, option, register

if TYPE_CHECKING:
    from torch import Tensor


class SqueezingConfig(OnCopies):
    beta: float = option(1e-3, "Weight of the term.", ge=0)
    on: Copies | None = option(None, "Copies to sum over. Default: all.")


@register("logit-squeezing", paper="Kannan et al., 2018; Summers & Dinneen, 2019", config=SqueezingConfig)
def logit_squeezing(config: SqueezingConfig, predictions: Predictions) -> Tensor:
    """Squared norm of the logits, averaged over images and summed over copies."""
    import torch

    copies = config.named_copies() or tuple(predictions.copies)
    each = [predictions[copy].logits.square().sum(1).mean() for copy in copies]
    return config.beta * torch.stack(each).sum()
