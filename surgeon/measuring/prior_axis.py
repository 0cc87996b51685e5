"""A swept prior: how many images the old statistics count for, where new ones come from images without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from torch import Tensor

from surgeon.data.images import ImageSet
from surgeon.layers.statistics import Statistics
from surgeon.measuring.axes import Value
from surgeon.measuring.preparation import PreparedNetwork
from surgeon.measuring.shared_prefix import SharedPrefix
from surgeon.models.history import Images, Recalibrated
from surgeon.surgery.recalibration import reestimate, set_statistics, statistics_of


class PriorAxis:
    """The statistics of a network at each of several priors, all estimated beforehand from the same images.

    Args:
        task: The network as it is prepared for its images.
        images: Where statistics come from; their labels are not looked at.
        values: The priors.
        layers: A selector of the layers; all others keep their statistics.
    """

    name = "prior"
    original = math.inf

    def __init__(self, task: PreparedNetwork, images: ImageSet, values: Sequence[float], layers: str | None) -> None:
        self.model, self.images = task.model, len(images)
        before = statistics_of(self.model)
        self.statistics: dict[float, dict[str, Statistics]] = {math.inf: before}
        self.layers = 0
        self.value = math.inf
        loader = task.with_one_view().batches(images)
        for value in (value for value in values if math.isfinite(value)):
            given = (batch.images.to(task.device) for batch in loader if len(batch.labels))
            found = reestimate(self.model, given, prior=value, images=self.images, layers=layers)
            self.layers = len(found.layers)
            self.statistics[value] = statistics_of(self.model)
            set_statistics(self.model, before)
        modules = dict(self.model.named_modules())
        self._prefix = SharedPrefix(self.model, [modules[name] for name in before])

    def logits(self, images: Tensor, values: Sequence[Value]) -> list[Tensor]:
        """The predictions for the same images at each value."""
        predicted = []
        with self._prefix.over(images) as forward:
            for value in values:
                self.set(value)
                predicted.append(forward())
        return predicted

    def passes(self, values: int) -> int:
        """How often images go through the network for a number of values."""
        return values

    def set(self, value: Value) -> None:
        """Leave the network at a value."""
        self.value = cast("float", value)
        set_statistics(self.model, self.statistics[self.value])

    def step(self, images: Images) -> Recalibrated:
        """What the network's history says of the value that it is left at."""
        return Recalibrated(estimated_on=images, prior=self.value, layers=self.layers)
