"""How well a network classifies, in one pass over the images, at one setting or at several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from surgeon.core.devices import Precision, computing_in, keep_heap
from surgeon.core.errors import SurgeonError, listing
from surgeon.data.loaders import Batch
from surgeon.layers.running import evaluating
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
        keep_heap()
        with evaluating(model), torch.inference_mode(), computing_in(self.precision, self.device):
            yield

    def logits(self, forward: Forward, images: Tensor) -> list[Tensor]:
        """The predictions of each setting that `forward` goes through."""
        images = images.to(self.device, non_blocking=True)
        if self.views is None:
            predictions = forward(images)
        else:
            large = images.shape[-1] * images.shape[-2] > LARGE_IMAGE
            rows = ROWS_OF_LARGE_IMAGES if large else ROWS_OF_SMALL_IMAGES
            predictions = predict_each(forward, images, self.views, self.merge, rows)
        for logits in predictions:
            if not isinstance(logits, Tensor):
                raise SurgeonError(
                    f"The network answers with a {type(logits).__name__}, not with one tensor of logits.",
                    "Wrap it in a module that gives the logits alone.",
                )
        return [logits.float().cpu() for logits in predictions]


def evaluate(model: nn.Module, batches: Iterable[Any]) -> Metrics:
    """All metrics of a network on any iterable of (images, labels), such as a DataLoader.

    Images are preprocessed as the network expects them. It is evaluated where it is and left as it was.
    """
    return summarise(score(model, batches))


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


IMAGE_KEYS = ("image", "images", "img", "pixel_values")
LABEL_KEYS = ("label", "labels", "target", "targets")


def _as_batch(item: Any, first: int) -> Batch:
    """From a pair, or from a dictionary with the names that Hugging Face's data sets use."""
    if isinstance(item, Mapping):
        keys = [next((key for key in known if key in item), None) for known in (IMAGE_KEYS, LABEL_KEYS)]
        parts = [item[key] for key in keys if key is not None]
        found = f"dictionary of {listing(item)}"
    else:
        parts = list(item[:2]) if isinstance(item, Sequence) else []
        found = type(item).__name__
    if len(parts) < 2:
        raise SurgeonError(
            f"Batches have to be (images, labels), and this one is a {found}.",
            'Pairs will do, and dictionaries with "image" and "label".',
        )
    images, labels = parts
    return Batch(images, labels, torch.arange(first, first + len(labels)))


def as_batches(given: Iterable[Any]) -> Iterator[Batch]:
    """Batches that hold images, from anything that gives (images, labels)."""
    seen = 0
    for item in given:
        batch = item if isinstance(item, Batch) else _as_batch(item, seen)
        seen += len(batch.labels)
        if len(batch.labels):
            yield batch
