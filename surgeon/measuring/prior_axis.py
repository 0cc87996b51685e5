"""A swept prior: how many images the old statistics count for, where new ones come from images without labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

from torch import Tensor

from surgeon.core.progress import Progress, say_nothing
from surgeon.data.images import ImageSet
from surgeon.layers.statistics import Statistics
from surgeon.measuring.axes import PassPerValue, Value
from surgeon.measuring.preparation import PreparedNetwork, batches_for, readable_images
from surgeon.measuring.shared_prefix import SharedPrefix
from surgeon.models.facts import Images
from surgeon.models.history import Recalibrated
from surgeon.surgery.recalibration import Reestimation, reestimate, set_statistics, statistics_of


class PriorAxis(PassPerValue):
    """The statistics of a network at each of several priors, all estimated beforehand from the same images.

    They are those of the network as it is when the axis is made. What else is swept comes on top of them.

    Args:
        task: The network as it is prepared for its images.
        images: Where statistics come from; their labels are not looked at.
        values: The priors.
        layers: A selector of the layers; all others keep their statistics.
        progress: Told how many images have been gone through.
    """

    name = "prior"
    original = math.inf

    def __init__(
        self,
        task: PreparedNetwork,
        images: ImageSet,
        values: Sequence[float],
        layers: str | None = None,
        progress: Progress = say_nothing,
    ) -> None:
        self.model, self.value = task.model, math.inf
        task = task.with_one_view()
        images, self.bad = readable_images(task, images)
        self.images = len(images)
        before = statistics_of(self.model)
        self.statistics: dict[float, dict[str, Statistics]] = {math.inf: before}
        self.found: dict[float, Reestimation] = {}
        finite = [value for value in values if math.isfinite(value)]
        try:
            for number, value in enumerate(finite):
                given = _batches(task, images, progress, number, len(finite))
                self.found[value] = reestimate(self.model, given, prior=value, images=self.images, layers=layers)
                self.statistics[value] = statistics_of(self.model)
                self.restore()
        except BaseException:
            self.restore()
            raise
        modules = dict(self.model.named_modules())
        changing = {layer.layer for found in self.found.values() for layer in found.layers} or before
        self._prefix = SharedPrefix(self.model, [modules[name] for name in changing])

    def set(self, value: Value) -> None:
        """Leave the network at a value."""
        self.value = cast("float", value)
        set_statistics(self.model, self.statistics[self.value])

    def restore(self) -> None:
        """Leave the network with the statistics that it had when the axis was made."""
        self.set(math.inf)

    def step(self, images: Images) -> Recalibrated | None:
        """What the network's history says of the value that it is left at; nothing of old statistics."""
        if self.value not in self.found:
            return None
        layers = self.found[self.value].layers
        shift = sum(layer.mean_shift for layer in layers) / max(len(layers), 1)
        return Recalibrated(estimated_on=images, prior=self.value, layers=len(layers), mean_shift=shift)


def _batches(
    task: PreparedNetwork, images: ImageSet, progress: Progress, number: int, estimates: int
) -> Iterator[Tensor]:
    """All images once more, for one of several estimates."""
    done = number * len(images)
    # Few images that are left over would be normalised by what is hardly an estimate.
    for batch in batches_for([task], images, fewest=task.batch_size // 2):
        done += len(batch.labels)
        progress("estimating statistics", done, estimates * len(images))
        yield batch.images.to(task.device)
