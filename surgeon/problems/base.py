"""What a problem is: all of targets and answers that differs between classifying images and segmenting them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from surgeon.data.images import ImageSet
from surgeon.data.transforms import MakeInput
from surgeon.metrics.accumulator import Scores
from surgeon.models.origin import LoadedModel, Preprocessing


class Problem(ABC):
    """One problem; there is one object of each."""

    name: str
    """As it is typed after `--problem`."""
    task: str
    """As the Hugging Face hub calls it."""
    transform: MakeInput
    """What makes the input of a picture."""
    default_metric: str
    """By which settings are chosen."""

    @abstractmethod
    def scores(self) -> Scores:
        """What predictions are taken into."""

    def keep(self, variant: str) -> Scores:  # noqa: ARG002
        """The same for any variant of a measurement."""
        return self.scores()

    @abstractmethod
    def logits(self, answer: Any, images: Tensor) -> Tensor:
        """The logits in what a network answers to images, classes in the second dimension; or an error."""

    def classes_of(self, logits: Tensor) -> int:
        """How many classes logits are of."""
        return logits.shape[1]

    @abstractmethod
    def preprocessing(self, stated: Preprocessing | None, images: ImageSet | None, most: int) -> Preprocessing | None:
        """What images go through if the network does not say; None if that is not known.

        Args:
            stated: What the network says.
            images: Those that there are.
            most: How long the shorter side may be by default.
        """

    @abstractmethod
    def resized(self, preprocessing: Preprocessing, side: int) -> Preprocessing:
        """The preprocessing for the `--input-size` that was asked for."""

    @abstractmethod
    def side(self, preprocessing: Preprocessing) -> int | None:
        """The `--input-size` that stands for it; None if none does."""

    @abstractmethod
    def images_at_once(self, size: Sequence[int]) -> int:
        """How many images of a size (..., height, width) go through a network together, unless somebody says."""

    @abstractmethod
    def fitted(self, images: ImageSet, outputs: int, names: Sequence[str] | None) -> ImageSet:
        """Images whose classes are those of a network with so many outputs, or an error."""

    @abstractmethod
    def heads(self, model: nn.Module) -> list[nn.Module] | None:
        """What makes classes of features, if the problem knows; otherwise it has to be looked for."""

    @abstractmethod
    def check_network(self, loaded: LoadedModel) -> None:
        """Refuse a network with something that does not go with the problem."""
