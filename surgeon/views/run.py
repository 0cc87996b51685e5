"""Running a network on all views of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from surgeon.core.errors import SurgeonError
from surgeon.views.merge import Merge, Merger

if TYPE_CHECKING:
    from torch import Tensor, nn

    from surgeon.views.base import Views

Forward = Callable[["Tensor"], Sequence["Tensor"]]
"""One or several predictions from the same images."""


def predict(model: nn.Module, batch: Tensor, views: Views, merge: Merge = Merge.LOGITS, max_batch: int = 128) -> Tensor:
    """The merged prediction for every image of a batch that has the preprocessing of the views."""
    return predict_each(lambda images: [model(images)], batch, views, merge, max_batch)[0]


def predict_each(
    forward: Forward, batch: Tensor, views: Views, merge: Merge = Merge.LOGITS, max_batch: int = 128
) -> list[Tensor]:
    """The same for each of several predictions that `forward` makes from the same images.

    Several views of the same size go through the network together, up to `max_batch` rows at a
    time: a few small images at a time leave most of a processor idle. The default suits images of
    32x32; larger images gain nothing from it and need memory for every row.
    """
    import torch

    if max_batch < 1:
        raise SurgeonError(f"A batch cannot have {max_batch} rows.", "Give at least 1.")
    with torch.inference_mode():
        parts = [_predict(forward, part, views, merge, max_batch) for part in torch.split(batch, max_batch)]
        return [torch.cat(prediction) for prediction in zip(*parts, strict=True)]


def _predict(forward: Forward, batch: Tensor, views: Views, merge: Merge, max_batch: int) -> list[Tensor]:
    import torch

    mergers: list[Merger] = []
    done = 0
    for packed in _packs(views.of(batch), max(max_batch // len(batch), 1)):
        predictions = _forward(forward, packed, views)
        mergers = mergers or [Merger(merge) for _ in predictions]
        for merger, logits in zip(mergers, predictions, strict=True):
            for number, of_view in enumerate(torch.split(logits, len(batch)), done):
                merger.add(views.restored(of_view, number))
        done += len(packed) // len(batch)
    return [merger.result() for merger in mergers]


def _packs(views: Iterator[Tensor], most_views: int) -> Iterator[Tensor]:
    """Consecutive views of the same shape, joined along the batch."""
    waiting: list[Tensor] = []
    for view in views:
        if waiting and (len(waiting) == most_views or waiting[0].shape != view.shape):
            yield _joined(waiting)
            waiting = []
        waiting.append(view)
    if waiting:
        yield _joined(waiting)


def _joined(views: list[Tensor]) -> Tensor:
    import torch

    # A window of a padded image is strided; convolutions want it compact and channels-last.
    return torch.cat(views).contiguous(memory_format=torch.channels_last)


def _forward(forward: Forward, packed: Tensor, views: Views) -> Sequence[Tensor]:
    try:
        return forward(packed)
    except (RuntimeError, AssertionError, ValueError) as error:
        height, width = packed.shape[-2:]
        if views.network_size == (height, width):
            raise
        raise SurgeonError(
            f"The views {views.name!r} need a network that takes images of any size, "
            f"but this one does not take {height}x{width} ({_first_line(error)}).",
            "Use flip, crop or ten-crop instead.",
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
