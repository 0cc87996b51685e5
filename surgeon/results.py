"""What commands find out, as typed records: tables, JSON, pictures and pages render from them and nothing else."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from surgeon.compute import Precision
from surgeon.metrics import Metrics
from surgeon.models.sources import Preprocessing
from surgeon.tta import Merge


class Result(BaseModel):
    # JSON has no infinity; as a string it survives being written and read.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Method(StrEnum):
    """How a sweep spends its forward passes."""

    RACE = "race"
    GRID = "grid"


class Learning(StrEnum):
    """How finely alpha was fitted by gradient."""

    PER_LAYER = "per-layer"
    PER_CHANNEL = "per-channel"


class Target(StrEnum):
    """What a network can be exported to."""

    TIMM = "timm"
    ONNX = "onnx"
    TORCH_EXPORT = "torch-export"


class Gain(Result):
    """A setting against the original network on the same images: the mean difference and its 95% interval.

    `difference` is setting - original, in the metric's own unit; whether that is better depends on
    the metric. `gained` and `lost` count the images on which the setting is better and worse (None
    for a metric that is no mean over images).
    """

    metric: str
    higher_is_better: bool
    images: int
    difference: float
    low: float
    high: float
    gained: int | None
    lost: int | None

    @property
    def within_noise(self) -> bool:
        """Whether the interval leaves open which of the two is better."""
        return not (self.low > 0 or self.high < 0)  # an interval that is not a number leaves it open

    @property
    def better(self) -> bool:
        """Whether the setting is better beyond noise."""
        return not self.within_noise and (self.difference > 0) == self.higher_is_better


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


class Evaluation(Result):
    """The result of an evaluation."""

    model: str
    data: str
    split: str
    rewrites: str
    preprocessing: Preprocessing
    device: str
    precision: Precision
    tta: str | None
    views: int
    against_one_view: AgainstOneView | None
    metrics: Metrics
    breakdown: Breakdown | None = None
    """For the report, if that was asked for."""
    bad_images: tuple[str, ...]
    seconds: float
    images_per_second: float
    logits_file: str | None = None
    checkpoint: str | None = None
    """Where the network was written with the fitted temperature, if that was asked for."""


class Point(Result):
    """One swept value. A race drops values early, so `metrics` may be of fewer images than were there."""

    value: float
    metrics: Metrics
    gain: Gain | None
    """By the metric of the sweep; None for the original itself."""
    dropped: str | None = None
    """Why a race went on without it: `beaten` or `thinned out`."""


class Setting(Result):
    """A setting of the network that was looked at closely: the original, the best value, learned values."""

    name: str
    choosing: Metrics
    """On the images that it was chosen or fitted on."""
    confirming: Metrics | None = None
    """On images held back, with the temperature fitted on the choosing ones."""
    gains: tuple[Gain, ...] = ()
    """Over the original, by several metrics; on the images held back if there are any."""

    @property
    def reported(self) -> Metrics:
        """The figures to quote: of the images held back, if there are any."""
        return self.confirming or self.choosing

    def gain(self, metric: str) -> Gain | None:
        return next((gain for gain in self.gains if gain.metric == metric), None)


class Learned(Result):
    """Alpha fitted by gradient: by layer name, one number, or one per channel."""

    kind: Learning
    alphas: dict[str, float | tuple[float, ...]]
    numbers: int
    epochs: int
    seconds: float
    gain_choosing: float
    """Setting - original on the images it was fitted on, by the metric of the sweep."""
    gain_confirming: float
    """The same on the images held back. The gap between the two is overfitting."""


class Sweep(Result):
    """The result of a sweep, `result.json`."""

    schema_version: int = 1
    model: str
    rewrites: str
    data: str
    split: str
    axis: str
    """What was swept: alpha."""
    metric: str
    higher_is_better: bool
    method: Method
    original: float
    """The value at which the network is what it was before any surgery."""
    points: tuple[Point, ...]
    """All swept values in ascending order."""
    chosen: float
    """The best single value."""
    settings: tuple[Setting, ...]
    """The original first, then the best single value, then what was learned."""
    best: str
    """The name of the best setting."""
    learned: tuple[Learned, ...] = ()
    temperature: float | None
    """Fitted at the best setting on the choosing images."""
    summary: tuple[str, ...]
    """What it all means, in sentences."""
    choosing_images: int
    confirming_images: int
    bad_images: tuple[str, ...] = ()
    preprocessing: Preprocessing | None = None
    tta: str | None = None
    views: int = 1
    device: str = "cpu"
    precision: Precision = Precision.FLOAT32
    image_forwards: int
    """How often an image went through the network, views not counted."""
    seconds: float
    checkpoint: str | None = None

    def setting(self, name: str) -> Setting:
        return next(setting for setting in self.settings if setting.name == name)


class Epoch(Result):
    """One pass over the training images."""

    number: int
    loss: float
    accuracy: float
    """On the training images as they were augmented; of mixed ones, the larger part counts."""
    learning_rate: float
    """At its end."""
    validation: Metrics | None
    seconds: float
    images_per_second: float
    left_out: int = 0
    """Images that could not be read."""


class FineTuning(Result):
    """The result of a fine-tuning run, `result.json`."""

    schema_version: int = 1
    model: str
    rewrites: str
    data: str
    classes: int
    train_images: int
    validation_images: int
    test_images: int
    held_back: bool
    """Whether the validation images were taken out of the training images."""
    preprocessing: Preprocessing
    recipe: dict[str, Any]
    batch_size: int
    trained_parameters: int
    parameters: int
    epochs: tuple[Epoch, ...]
    validation: Metrics
    """Of the network as it came out of training."""
    settings: tuple[str, ...]
    """What was then chosen on the validation images, in sentences."""
    test: Metrics | None
    """Of the checkpoint, with its settings, on test images that nothing was chosen by."""
    tta: str | None = None
    snapshots: tuple[str, ...] = ()
    device: str
    seconds: float
    checkpoint: str


class Merging(Result):
    """What became of a split network when its branches were folded into one."""

    model: str
    share: float
    """Of the auxiliary branch."""
    layers: int
    probability_shift: float | None
    """Largest difference of a probability from the average of two passes, on random images."""
    two_passes: Metrics | None = None
    """Of the average of both branches' predictions, on images if there are any."""
    merged: Metrics | None = None
    gains: tuple[Gain, ...] = ()
    """Of the merged network over the average of two passes."""
    notes: tuple[str, ...] = ()
    """What else to know about it, in sentences."""
    output: str


class Export(Result):
    """A network written for programs that do not know surgeon, and how it was checked."""

    model: str
    target: Target
    output: str
    """The file, or the folder."""
    files: dict[str, int]
    """Everything that was written, with sizes in bytes."""
    preprocessing: Preprocessing | None
    """What has to be done to images first."""
    folded: int | None
    """BatchNorm layers folded into convolutions; None if that was not asked for."""
    data: str | None = None
    """Whose images the written network was compared on with the original; None for random ones."""
    images: int
    batch_sizes: tuple[int, ...]
    """How many of them at a time."""
    difference: float
    """The largest from the original's outputs, relative to the largest output."""
    notes: tuple[str, ...] = ()


class AugmentAffinity(Result):
    """How well a network classifies images that are augmented in one way.

    The accuracy is the weight that a label gives to the predicted class, averaged: for labels that
    are not mixed, the usual accuracy. `difference` is that minus the clean accuracy, paired on the
    same images, with its 95% interval.
    """

    augment: str
    accuracy: float
    ceiling: float
    """What a network could reach that always names the class with the largest weight; 1 where labels are not mixed."""
    difference: float
    low: float
    high: float
    seconds: float


class Affinity(Result):
    """How far augmentations lead from the images that a network knows."""

    model: str
    data: str
    split: str
    preprocessing: Preprocessing
    seed: int
    images: int
    clean_accuracy: float
    augments: tuple[AugmentAffinity, ...]
    """From the nearest to the farthest."""
    left_out: dict[str, str] = {}
    """Augmentations that cannot be applied to these images, and why."""
    bad_images: tuple[str, ...] = ()
    seconds: float


class Member(Result):
    """A network of an ensemble, by itself."""

    name: str
    rewrites: str
    preprocessing: Preprocessing
    metrics: Metrics


class Combination(Result):
    """Several members made one: by averaging their predictions, or their weights."""

    name: str
    members: tuple[str, ...]
    passes: int
    """How many networks an image goes through."""
    metrics: Metrics
    over_best: tuple[Gain, ...]
    """Over the member that is best on these very images, by several metrics."""
    over_mean: tuple[Gain, ...]
    """Over what the members are on average, by those metrics that are means over images."""

    def gain(self, metric: str) -> Gain:
        """The gain over the best member."""
        return next(gain for gain in self.over_best if gain.metric == metric)


class Step(Result):
    """A member that was tried in the ensemble."""

    member: str
    value: float | None
    """Of the ensemble with this member in it, by the metric that was chosen by."""
    kept: bool


class Choice(Result):
    """How members were chosen, on images that take no part in the report."""

    split: str
    half: bool
    """Whether they are one half of the split whose other half is reported on."""
    images: int
    steps: tuple[Step, ...]


class Restatement(Result):
    """The images from which normalisation statistics were estimated anew."""

    split: str
    images: int
    layers: int
    averaged_layers: tuple[str, ...]
    """Layers some of whose statistics are only averaged over the members: auxiliary branches and modes."""


class Ensemble(Result):
    """The result of averaging several networks, `result.json`."""

    schema_version: int = 1
    data: str
    split: str
    merge: Merge
    metric: str
    members: tuple[Member, ...]
    best: str
    """The best member on these images, by the metric."""
    combinations: tuple[Combination, ...]
    """All members averaged; the chosen ones averaged; the average of their weights."""
    disagreement: tuple[tuple[float, ...], ...]
    """Share of images on which two members predict different classes."""
    mean_disagreement: float
    choice: Choice | None = None
    statistics: Restatement | None = None
    summary: tuple[str, ...]
    """What it all means, in sentences."""
    tta: str | None
    views: int
    device: str
    precision: Precision
    bad_images: tuple[str, ...]
    seconds: float
    checkpoint: str | None = None
    """Where the average of the weights was written."""
