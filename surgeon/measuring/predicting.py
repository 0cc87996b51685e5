"""How well a network classifies, in one pass over the images, at one setting or at several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from surgeon.core.devices import Precision, computing_in
from surgeon.data.loaders import Batch
from surgeon.layers.running import evaluating
from surgeon.measuring.batches import as_batches, check_logits, checked_network, refusing_other_types
from surgeon.metrics import Metrics, Scores, summarise
from surgeon.views import Forward, Merge, Views, predict_each

ROWS_OF_SMALL_IMAGES, ROWS_OF_LARGE_IMAGES = 128, 32
LARGE_IMAGE = 64 * 64


@dataclass(frozen=True)
class Manner:
    """How images are predicted, whatever the setting."""

    device: torch.device
    precision: Precision = Precision.FLOAT32
    views: Views | None = None
    merge: Merge = Merge.LOGITS

    @classmethod
    def of(cls, model: nn.Module) -> Manner:
        """Plainly, on the device where the network is."""
        tensors = (*model.parameters(), *model.buffers())
        return cls(next((t.device for t in tensors), torch.device("cpu")))

    @contextmanager
    def applied_to(self, model: nn.Module) -> Iterator[None]:
        """The network in evaluation mode and in this precision."""
        with evaluating(model), torch.inference_mode(), computing_in(self.precision, self.device):
            yield

    def logits(self, forward: Forward, images: Tensor) -> list[Tensor]:
        """The predictions of each setting that `forward` goes through."""
        images = images.to(self.device, non_blocking=True)
        with refusing_other_types(images):
            if self.views is None:
                predictions = forward(images)
            else:
                large = images.shape[-1] * images.shape[-2] > LARGE_IMAGE
                rows = ROWS_OF_LARGE_IMAGES if large else ROWS_OF_SMALL_IMAGES
                predictions = predict_each(forward, images, self.views, self.merge, rows)
        for logits in predictions:
            check_logits(logits, len(images))
        return [logits.float().cpu() for logits in predictions]


def evaluate(model: nn.Module, batches: Iterable[Any]) -> Metrics:
    """All metrics of a network that gives one row of logits per image, on any iterable of (images, labels).

    It is evaluated where it is and left as it was.

    Args:
        model: Any network that classifies images.
        batches: Such as a DataLoader: images as one tensor, preprocessed as the network expects them, and one class
            number per image; or dictionaries with "image" and "label".
    """
    return summarise(score(checked_network(model), batches))


def score(
    model: nn.Module,
    batches: Iterable[Any],
    manner: Manner | None = None,
    watch: Callable[[Tensor, Batch], None] | None = None,
) -> Scores:
    """Predict every batch and keep a few numbers per image; `watch` sees the logits of each batch."""
    manner = manner or Manner.of(model)
    scores = Scores()
    with manner.applied_to(model):
        for batch in as_batches(batches):
            (logits,) = manner.logits(lambda images: [model(images)], batch.images)
            scores.update(logits, batch.labels, batch.indices)
            if watch is not None:
                watch(logits, batch)
    return scores
