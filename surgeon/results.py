"""What commands find out, as typed records: tables, JSON, pictures and pages render from them and nothing else."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from surgeon.compute import Precision
from surgeon.metrics import Metrics
from surgeon.models.sources import Preprocessing


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
