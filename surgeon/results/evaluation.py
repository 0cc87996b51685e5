"""What `eval` finds out."""

from __future__ import annotations

from pydantic import Field

from surgeon.core.devices import Engine, Precision
from surgeon.metrics import Metrics
from surgeon.models.origin import Preprocessing
from surgeon.results.base import Gain, Result
from surgeon.results.robustness import ConditionFigures


class AgainstOneView(Result):
    """What test-time augmentation brought, and what it cost."""

    metrics: Metrics
    """With one view of each image."""
    gains: tuple[Gain, ...]
    times_the_time: float


class ConfidenceBin(Result):
    """Images whose confidence lies above `low` and up to `high`."""

    low: float
    high: float
    images: int
    confidence: float
    """Their mean."""
    accuracy: float
    accuracy_low: float
    accuracy_high: float


class ClassFigures(Result):
    """How the images of one class were classified."""

    name: str
    images: int
    correct: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    predicted: int
    """Images of any class that were taken for it."""


class Confusion(Result):
    """Images of one class that were taken for another."""

    actual: str
    predicted: str
    images: int
    share: float
    """Of the images of the class."""


class Mistake(Result):
    """A wrong prediction that the network was sure of."""

    image: str
    actual: str
    predicted: str
    confidence: float


class Breakdown(Result):
    """What lies behind the figures of an evaluation; the longest lists are cut to what people look at."""

    bins: tuple[ConfidenceBin, ...]
    """All that hold images."""
    classes: tuple[ClassFigures, ...]
    confusions: tuple[Confusion, ...]
    mistakes: tuple[Mistake, ...]


class MaskClass(Result):
    """How the pixels of one class were found; of images together."""

    name: str
    iou: float
    iou_low: float
    iou_high: float
    pixels: int
    """Of the class."""
    found: float
    """The share of these that were taken for it."""
    predicted: int
    """Pixels of any class that were taken for it."""
    images: int
    """That show the class."""


class MaskBreakdown(Result):
    """What lies behind the figures of predicted masks; what is counted are pixels."""

    classes: tuple[MaskClass, ...]
    """Those that the images show, in the order of their numbers."""
    absent: tuple[str, ...]
    """Those that no image shows, which have no IoU and are left out of its mean."""
    void: tuple[int, ...]
    """The values of pixels without a class."""
    void_share: float
    """Of all pixels."""
    size: tuple[int, int]
    """Height and width at which masks are compared."""
    confusions: tuple[Confusion, ...]
    bins: tuple[ConfidenceBin, ...]


class Evaluation(Result):
    """The result of an evaluation."""

    model: str
    data: str
    split: str
    warnings: tuple[str, ...] = ()
    """What to beware of in the images that the temperature was fitted on."""
    rewrites: str
    prediction_by: str | None = None
    """Which branch of a split network predicted."""
    preprocessing: Preprocessing
    device: str
    precision: Precision
    engine: Engine = Engine.TORCH
    """What computed the predictions."""
    engine_difference: float | None = None
    """The largest difference of its logits from torch's on the first batch, where it is another."""
    tta: str | None
    views: int
    against_one_view: AgainstOneView | None
    metrics: Metrics
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """95% intervals of the figures, by the name of the metric."""
    under: tuple[ConditionFigures, ...] = ()
    """The same images under conditions, if that was asked for."""
    breakdown: Breakdown | None = None
    """For the report, if that was asked for."""
    masks: MaskBreakdown | None = None
    """Of predicted masks, class by class."""
    matched_classes: tuple[int, int] | None = None
    """How many classes the data and the network have, where they were matched by name."""
    bad_images: tuple[str, ...]
    seconds: float
    images_per_second: float
    logits_file: str | None = None
    temperature_gain: Gain | None = None
    """What the fitted temperature does to the cross-entropy, if it was to be stored."""
    decision: str = ""
    """Whether it was stored, and why, in a sentence."""
    checkpoint: str | None = None
    """Where the network was written, with the fitted temperature if its gain is real, if that was asked for."""
