"""How well a network classifies, in one pass over the images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from surgeon.compute import Precision, computing_in, keep_heap
from surgeon.data.loaders import Batch
from surgeon.metrics import Metrics, Scores, summarise
from surgeon.surgery.parity import evaluating
from surgeon.tta import Merge, Views, predict

ROWS_OF_SMALL_IMAGES, ROWS_OF_LARGE_IMAGES = 128, 32
LARGE_IMAGE = 64 * 64


def evaluate(model: nn.Module, batches: Iterable[Any]) -> Metrics:
    """All metrics of a network on any iterable of (images, labels), such as a DataLoader."""
    return summarise(score(model, batches))


def score(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    views: Views | None = None,
    merge: Merge = Merge.LOGITS,
    precision: Precision = Precision.FLOAT32,
    watch: Callable[[Tensor, Batch], None] | None = None,
) -> Scores:
    """Predict every batch and keep a few numbers per image; `watch` sees the logits of each batch."""
    keep_heap()
    device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    scores = Scores()
    seen = 0
    with evaluating(model), torch.inference_mode(), computing_in(precision, device):
        for given in batches:
            batch = _as_batch(given, seen)
            seen += len(batch.labels)
            if len(batch.labels) == 0:  # every image of it was bad
                continue
            logits = _logits(model, batch.images.to(device, non_blocking=True), views, merge).float().cpu()
            scores.update(logits, batch.labels, batch.indices)
            if watch is not None:
                watch(logits, batch)
    return scores


def _as_batch(given: Any, seen: int) -> Batch:
    if isinstance(given, Batch):
        return given
    images, labels = given[0], given[1]
    return Batch(images, labels, torch.arange(seen, seen + len(labels)))


def _logits(model: nn.Module, images: Tensor, views: Views | None, merge: Merge) -> Tensor:
    if views is None:
        logits: Tensor = model(images)
        return logits
    large = images.shape[-1] * images.shape[-2] > LARGE_IMAGE
    return predict(model, images, views, merge, ROWS_OF_LARGE_IMAGES if large else ROWS_OF_SMALL_IMAGES)
