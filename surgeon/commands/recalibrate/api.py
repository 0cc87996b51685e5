"""`surgeon.recalibrate`: any network, any iterable of images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from surgeon.measuring.batches import checked_loader, checked_network, images_in
from surgeon.measuring.inference import InferenceSettings
from surgeon.models.facts import DataKind, DataSet, Images
from surgeon.models.history import Recalibrated
from surgeon.models.origin import note_on
from surgeon.results.steps import minimised
from surgeon.surgery.apply import unwrapped
from surgeon.surgery.entropy import EPOCHS, RATE, minimise_entropy
from surgeon.surgery.recalibration import (
    DEFAULT_PRIOR,
    FORGET,
    KEEP,
    Reestimation,
    reestimate,
    set_statistics,
    statistics_of,
)


def recalibrate(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    prior: float = DEFAULT_PRIOR,
    layers: str | None = None,
    tent: bool = False,
    epochs: int = EPOCHS,
    lr: float = RATE,
) -> Reestimation:
    """Estimate the statistics of normalisation layers anew from any iterable of images, in place, without labels.

    If it fails, the network is as before.

    Args:
        model: Any network with BatchNorm layers, converted or not; it stays on its device.
        loader: Batches of images as the network expects them, or of (images, labels), whose labels are ignored.
            It is gone through twice, first to count the images, unless the prior is 0 or infinite; with `tent`, more
            often. What can be gone through only once is kept in memory. Batches should be mixed: one of a single class
            has its own statistics.
        prior: How many images the old statistics count for. 0 forgets them, and at infinity they stay as they are.
        layers: A selector such as "stem" or "layer[34].*"; all other layers keep their statistics.
        tent: Then minimise the mean entropy of the predictions over gamma and beta (Tent, offline).
        epochs: How often `tent` goes through the images.
        lr: Its learning rate.

    Examples:
        >>> result = surgeon.recalibrate(model, loader)
        >>> result.images, [layer.mean_shift for layer in result.layers]
    """
    network = unwrapped(checked_network(model))
    batches = _Batches(network, loader)
    images = None if prior in (FORGET, KEEP) else sum(map(len, batches))
    before = statistics_of(network)
    found = reestimate(network, batches, prior=prior, images=images, layers=layers)
    if tent:
        try:
            entropy = minimise_entropy(network, batches, epochs=epochs, lr=lr)
        except BaseException:
            set_statistics(network, before)
            raise
        found = found.model_copy(update={"entropy": entropy})
    data = DataSet(name=type(loader).__name__, kind=DataKind.LOADER)
    shift = sum(layer.mean_shift for layer in found.layers) / max(len(found.layers), 1)
    step = Recalibrated(
        estimated_on=Images(data=data, split="all", number=found.images),
        prior=prior,
        layers=len(found.layers),
        mean_shift=shift,
        entropy=minimised(found.entropy),
    )
    note_on(network, step)
    return found


class _Batches:
    """The images of a loader on the device of a network, as often as they are wanted."""

    def __init__(self, network: nn.Module, loader: Any) -> None:
        given = [loader] if isinstance(loader, Tensor) else checked_loader(loader)
        self.given = list(given) if isinstance(given, Iterator) else given
        self.device = InferenceSettings.of(network).device

    def __iter__(self) -> Iterator[Tensor]:
        return (images_in(batch).to(self.device) for batch in self.given)
