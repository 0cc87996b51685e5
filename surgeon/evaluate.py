"""How well a network classifies."""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surgeon.surgery.parity import evaluating


class Scores(BaseModel):
    """Accuracy and cross-entropy over a number of images."""

    model_config = ConfigDict(frozen=True)

    images: int
    accuracy: float
    cross_entropy: float


def evaluate(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int = 256) -> Scores:
    """Score a network on images that are in memory."""
    with evaluating(model), torch.inference_mode():
        logits = torch.cat([model(batch) for batch in torch.split(images, batch_size)])
    return Scores(
        images=len(labels),
        accuracy=(logits.argmax(1) == labels).double().mean().item(),
        cross_entropy=cross_entropy(logits.double(), labels).item(),
    )
