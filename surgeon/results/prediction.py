"""What `predict` finds out."""

from __future__ import annotations

from surgeon.core.devices import Precision
from surgeon.models.origin import Preprocessing
from surgeon.results.base import Result


class ClassProbability(Result):
    """One class that an image may show."""

    name: str
    output: int
    """The number of the network's output."""
    probability: float


class PredictedImage(Result):
    """The most probable classes of one image."""

    image: str
    """Its path as it was given; in Python, the number of an image that has none."""
    classes: tuple[ClassProbability, ...]
    """The most probable first; none if the network's logits are not numbers."""


class ClassShare(Result):
    """How much of an image a class takes up."""

    name: str
    output: int
    """The number of the network's output, which pixels of the mask hold."""
    share: float
    """Of the pixels."""


class PredictedMask(Result):
    """The predicted mask of one image, which is a file."""

    image: str
    file: str
    """None was written if the network's logits are not numbers."""
    classes: tuple[ClassShare, ...]
    """Those that the mask shows, the largest first."""
    confidence: float
    """Mean over the pixels."""


class Prediction(Result):
    """The result of `predict`."""

    model: str
    rewrites: str
    prediction_by: str | None = None
    """The branch of a split network that predicted."""
    temperature: float | None = None
    """The stored temperature, by which logits are divided."""
    outputs: int
    class_names_from: str
    """Where class names come from: `checkpoint`, `imagenet-1k` or another ImageNet set, or `numbers` (no names)."""
    preprocessing: Preprocessing
    device: str
    precision: Precision
    tta: str | None = None
    views: int = 1
    images: tuple[PredictedImage, ...]
    """The predictions, in the given order."""
    masks: tuple[PredictedMask, ...] = ()
    """Instead of classes, if the network segments."""
    bad_images: tuple[str, ...] = ()
    """Images that could not be read and were left out, each with the reason."""
    remarks: tuple[str, ...] = ()
    """Notes on how the samples were prepared."""
    seconds: float
    csv_file: str | None = None

    @property
    def nan_images(self) -> int:
        """How many images have logits that are not numbers."""
        return sum(not image.classes for image in self.images) + sum(not mask.classes for mask in self.masks)
