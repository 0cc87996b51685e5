"""What `sweep` finds out."""

from __future__ import annotations

from enum import StrEnum

from surgeon.core.devices import Precision
from surgeon.metrics import Metrics
from surgeon.models.origin import Preprocessing
from surgeon.results.base import Gain, Result


class Method(StrEnum):
    """How a sweep spends its forward passes."""

    RACE = "race"
    GRID = "grid"


class Learning(StrEnum):
    """How finely alpha was fitted by gradient."""

    PER_LAYER = "per-layer"
    PER_CHANNEL = "per-channel"


class Point(Result):
    """One swept value. A race drops values early, so `metrics` may be of fewer images than were there."""

    value: float
    second: float | None = None
    """Of the second axis, where two were swept at once."""
    metrics: Metrics
    gain: Gain | None
    """By the metric of the sweep; None for the original itself."""
    other_gains: tuple[Gain, ...] = ()
    """By the other metrics that are drawn."""
    dropped: str | None = None
    """Why a race went on without it: `beaten`, `thinned out`, or `interpolated`: never computed, but estimated."""
    clean: Metrics | None = None
    """On clean images, where the setting was chosen under other conditions."""

    def gain_by(self, metric: str) -> Gain | None:
        own = () if self.gain is None else (self.gain,)
        return next((gain for gain in (*own, *self.other_gains) if gain.metric == metric), None)


class Spent(Result):
    """Seconds of a sweep that went into one kind of work."""

    what: str
    seconds: float


class Interpolation(Result):
    """How a race found out which value to compute on all images."""

    computed: tuple[float, ...]
    """The values of which the logits of all others were interpolated."""
    images: int
    """On how many images."""
    checked: tuple[float, ...]
    """Other values that were computed, to see whether interpolation can be trusted: also the most promising one."""
    checked_images: int
    """On how many images at least."""
    disagreement: float
    """The largest share of images of which an interpolated prediction was another one than the computed."""


class Setting(Result):
    """A setting of the network that was looked at closely: the original, the best value, learned values."""

    name: str
    choosing: Metrics
    """On the images that it was chosen or fitted on."""
    confirming: Metrics | None = None
    """On held-out images, with the temperature fitted on the choosing ones."""
    gains: tuple[Gain, ...] = ()
    """Over the original, by several metrics; on held-out images if there are any. If several settings were
    measured there, the intervals of all of them together contain the truth 95 times of 100."""

    clean: Metrics | None = None
    """On clean images (held-out ones if there are any), where the setting was chosen under other conditions."""
    clean_gain: Gain | None = None
    """In accuracy over the original on these."""

    @property
    def reported(self) -> Metrics:
        """The figures to quote: of the held-out images, if there are any."""
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
    """The same on the held-out images. The gap between the two is overfitting."""


class Sweep(Result):
    """The result of a sweep, `result.json`."""

    schema_version: int = 1
    model: str
    rewrites: str
    data: str
    split: str
    axis: str
    """What was swept: alpha."""
    second_axis: str | None = None
    """What else was swept at once, every value with every other."""
    metric: str
    higher_is_better: bool
    method: Method
    interpolation: Interpolation | None = None
    """What a race went by, where it did not try all values."""
    original: float
    """The value at which the network is what it was before any surgery."""
    second_original: float | None = None
    points: tuple[Point, ...]
    """All swept values in ascending order."""
    chosen: float
    """The best single value."""
    second_chosen: float | None = None
    settings: tuple[Setting, ...]
    """The original first, then the best single value, then what was learned."""
    best: str
    """The name of the best setting."""
    kept: str | None = None
    """The name of the setting that the network is left at, and that `--apply` stores: the best one if its gain is
    beyond noise (or it was forced), else the original."""
    forced: bool = False
    """Whether it is kept although its gain may be noise."""
    decision: str = ""
    """Why, in a sentence."""
    learned: tuple[Learned, ...] = ()
    under: tuple[str, ...] = ()
    """The conditions that it was chosen under, by the mean over them; none if the images are as they are."""
    confirmed_under: tuple[str, ...] = ()
    """Those that the held-out images were seen under: other families of corruptions, where there are any."""
    max_clean_loss: float | None = None
    """The most accuracy that a setting was allowed to lose on clean images."""
    temperature: float | None
    """Fitted at the kept setting on the choosing images."""
    temperature_gain: Gain | None = None
    """What it does to the cross-entropy at that setting, on held-out images if there are any."""
    summary: tuple[str, ...]
    """What it all means, in sentences."""
    estimating_images: int = 0
    """Where the prior was swept: how many other images the statistics are of, without their labels."""
    choosing_images: int
    confirming_images: int
    warnings: tuple[str, ...] = ()
    """What to beware of in the images it was chosen on."""
    matched_classes: tuple[int, int] | None = None
    """How many classes the data and the network have, where they were matched by name."""
    bad_images: tuple[str, ...] = ()
    preprocessing: Preprocessing | None = None
    tta: str | None = None
    views: int = 1
    device: str = "cpu"
    precision: Precision = Precision.FLOAT32
    image_forwards: int
    """How often an image went through the network, views not counted."""
    seconds: float
    spent: tuple[Spent, ...] = ()
    """Where they went."""
    checkpoint: str | None = None

    @property
    def axes(self) -> str:
        """What was swept, as one name."""
        return self.axis if self.second_axis is None else f"{self.axis} × {self.second_axis}"

    def is_original(self, point: Point) -> bool:
        return (point.value, point.second) == (self.original, self.second_original)

    def is_chosen(self, point: Point) -> bool:
        return (point.value, point.second) == (self.chosen, self.second_chosen)

    def setting(self, name: str) -> Setting:
        return next(setting for setting in self.settings if setting.name == name)
