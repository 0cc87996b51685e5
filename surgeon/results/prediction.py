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
    """Which branch of a split network predicted."""
    temperature: float | None = None
    """By which the checkpoint has logits divided."""
    outputs: int
    class_names_from: str
    """Who names the classes: `checkpoint`, `imagenet-1k` or another set of ImageNet, or `numbers`."""
    preprocessing: Preprocessing
    device: str
    precision: Precision
    tta: str | None = None
    views: int = 1
    images: tuple[PredictedImage, ...]
    """In the order in which they were given."""
    masks: tuple[PredictedMask, ...] = ()
    """In the place of classes, if the network segments."""
    bad_images: tuple[str, ...] = ()
    """Those that could not be read and were left out, each with the reason."""
    remarks: tuple[str, ...] = ()
    """How the samples were brought into the form that the network takes, where a user should know."""
    seconds: float
    csv_file: str | None = None

    @property
    def nan_images(self) -> int:
        """How many images have logits that are not numbers."""
        return sum(not image.classes for image in self.images) + sum(not mask.classes for mask in self.masks)
