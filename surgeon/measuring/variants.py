"""What is compared: variants of networks, each a way to predict samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from surgeon.data.loaders import Batch
from surgeon.measuring.axes import Axis, Value
from surgeon.measuring.inference import InferenceSettings
from surgeon.models.origin import Preprocessing
from surgeon.views import Merge, Merger

Condition = Callable[[Batch], Batch]
"""What happens to samples before a network sees them."""


@dataclass(frozen=True)
class Variant:
    """One way to predict samples."""

    model: nn.Module
    inference: InferenceSettings
    preprocessing: Preprocessing | None = None
    """What its images have gone through, where samples are prepared in several ways."""
    condition: Condition | None = None
    axis: Axis | None = None
    """A number on which the predictions of the network depend."""
    value: Value = 0.0
    """Which that number is."""

    @property
    def inputs(self) -> tuple[object, ...]:
        """Equal for variants that see the same."""
        return self.preprocessing, id(self.condition)

    @property
    def shared(self) -> tuple[object, ...]:
        """Equal for variants that are predicted together."""
        return *self.inputs, id(self.model), self.inference, id(self.axis)


@dataclass(frozen=True)
class Average:
    """The average of the predictions of other variants, which counts as a variant itself."""

    of: Sequence[str]
    merge: Merge


def average(predictions: Sequence[Tensor], merge: Merge) -> Tensor:
    """One prediction out of several, to be used like logits; all count alike."""
    merger = Merger(merge)
    for logits in predictions:
        merger.add(logits)
    return merger.result()
