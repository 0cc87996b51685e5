"""The consistency loss of AugMix: predictions for several versions of an image are to agree.

D. Hendrycks et al., AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty, ICLR 2020.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from surgeon.losses.base import Copy, LossConfig, Predictions, option, register, wide

if TYPE_CHECKING:
    from torch import Tensor

LEAST_LOG_PROBABILITY = -1e4  # below it the probability is zero in any precision
COMPARED = (Copy.CLEAN, Copy.WEAK, Copy.SECOND)


class ConsistencyConfig(LossConfig):
    weight: float = option(12.0, "Weight of the term; 12 in the paper.", ge=0)


@register(
    "jensen-shannon",
    paper="Hendrycks et al., ICLR 2020",
    config=ConsistencyConfig,
    copies=COMPARED,
    labels_on=Copy.CLEAN,
)
def consistency(config: ConsistencyConfig, predictions: Predictions) -> Tensor:
    """Jensen-Shannon divergence of the predictions for a clean and two augmented copies, as in AugMix."""
    return config.weight * jensen_shannon([predictions[copy].logits for copy in COMPARED])


def jensen_shannon(logits: Sequence[Tensor]) -> Tensor:
    """How far several predictions (N, classes) for the same images are apart.

    The Jensen-Shannon divergence: the mean divergence of each prediction from their average, averaged over the images;
    between 0 and the logarithm of the number of predictions. It is computed in log space, in float32 or wider. AugMix
    adds 12 times this of the clean image and two augmentations to the cross-entropy of the clean one.
    """
    import torch

    if len(logits) < 2:
        raise ValueError(f"A divergence needs two predictions or more, not {len(logits)}")
    # A class that is impossible (a logit of -inf) counts as very improbable: zero times infinity is no number.
    logs = torch.stack([wide(one).log_softmax(dim=-1).clamp_min(LEAST_LOG_PROBABILITY) for one in logits])
    average = logs.logsumexp(dim=0) - math.log(len(logits))
    return (logs.exp() * (logs - average)).sum(dim=-1).mean()
