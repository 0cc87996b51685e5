"""How a network predicts a batch of images: on which device, in which precision, with which views."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from surgeon.core.devices import Precision, computing_in
from surgeon.layers.running import evaluating
from surgeon.layers.wrapped import moved
from surgeon.measuring.batches import refusing_failures
from surgeon.problems import CLASSIFICATION, Problem
from surgeon.views import Forward, Merge, Views, predict_each


@dataclass(frozen=True)
class InferenceSettings:
    """How images are predicted, whatever the network's own settings are."""

    device: torch.device
    precision: Precision = Precision.FLOAT32
    views: Views | None = None
    merge: Merge = Merge.LOGITS
    outputs: tuple[int, ...] | None = None
    """Those that the classes of the images are, if the network has others too."""
    as_answered: bool = False
    """Keep what the network answers as it is, for a score of the user's own."""
    problem: Problem = CLASSIFICATION
    """What answers are."""

    @classmethod
    def of(cls, model: nn.Module) -> InferenceSettings:
        """Plainly, on the device where the network is."""
        tensors = (*model.parameters(), *model.buffers())
        return cls(next((t.device for t in tensors), torch.device("cpu")))

    @contextmanager
    def applied_to(self, model: nn.Module) -> Iterator[None]:
        """The network in evaluation mode and in this precision."""
        with evaluating(model), torch.inference_mode(), computing_in(self.precision, self.device):
            yield

    def answers(self, forward: Callable[[Any], list[Any]], images: Any) -> list[Any]:
        """What is scored, for each setting that `forward` goes through: logits, unless answers are to be kept."""
        if not self.as_answered:
            return self.logits(forward, images)
        inputs = moved(images, self.device)
        with refusing_failures(inputs):
            return [moved(answer, torch.device("cpu")) for answer in forward(inputs)]

    def logits(self, forward: Forward, images: Tensor) -> list[Tensor]:
        """The predictions of each setting that `forward` goes through."""
        images = images.to(self.device, non_blocking=True)

        def unwrapped(some: Tensor) -> list[Tensor]:
            return [self.problem.logits(answer, some) for answer in forward(some)]

        with refusing_failures(images):
            if self.views is None:
                predictions = unwrapped(images)
            else:
                predictions = predict_each(
                    unwrapped, images, self.views, self.merge, self.problem.images_at_once(images.shape)
                )
        if self.outputs is not None:
            predictions = [logits[:, list(self.outputs)] for logits in predictions]
        return [logits.float().cpu() for logits in predictions]
