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
    """Value of the second option, if two were swept at once."""
    metrics: Metrics
    gain: Gain | None
    """Gain over the original in the metric of the sweep; None for the original itself."""
    other_gains: tuple[Gain, ...] = ()
    """Gains in the other metrics that are drawn."""
    dropped: str | None = None
    """Why a race dropped it: `beaten`, `thinned out`, or `interpolated` (estimated, not computed)."""
    clean: Metrics | None = None
    """Figures on clean images, if the sweep chose under other conditions."""

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
    """The computed values from which the logits of all others were interpolated."""
    images: int
    """Number of images on which they were computed."""
    checked: tuple[float, ...]
    """Further values that were computed to check the interpolation, the most promising one among them."""
    checked_images: int
    """Smallest number of images on which they were computed."""
    disagreement: float
    """Largest share of images with an interpolated prediction that differs from the computed one."""


class Setting(Result):
    """A setting of the network that was looked at closely: the original, the best value, learned values."""

    name: str
    choosing: Metrics
    """Figures on the images that it was chosen or fitted on."""
    confirming: Metrics | None = None
    """Figures on held-out images, with the temperature fitted on the choosing ones."""
    gains: tuple[Gain, ...] = ()
    """Gains over the original in several metrics; on held-out images if there are any. If several settings were
    measured there, their intervals are corrected for the number of settings."""

    clean: Metrics | None = None
    """Figures on clean images (held-out ones if there are any), if the sweep chose under other conditions."""
    clean_gain: Gain | None = None
    """Gain in accuracy over the original on these."""

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
    """The swept option, such as alpha."""
    second_axis: str | None = None
    """The second option, if two were swept at once."""
    metric: str
    higher_is_better: bool
    method: Method
    interpolation: Interpolation | None = None
    """How a race interpolated, if it did not compute all values."""
    original: float
    """The value at which the network equals the original."""
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
    significant (or it was forced), else the original."""
    forced: bool = False
    """Whether it is kept although its gain is not significant."""
    decision: str = ""
    """Why the best setting is kept or not, in a sentence."""
    learned: tuple[Learned, ...] = ()
    under: tuple[str, ...] = ()
    """Conditions whose mean chose the setting; none for images as they are."""
    confirmed_under: tuple[str, ...] = ()
    """Conditions of the held-out images: other families of corruptions, if there are any."""
    max_clean_loss: float | None = None
    """Largest loss of accuracy on clean images that was allowed."""
    temperature: float | None
    """Temperature, fitted at the kept setting on the choosing images."""
    temperature_gain: Gain | None = None
    """Gain in cross-entropy by the temperature, on held-out images if there are any."""
    summary: tuple[str, ...]
    """The conclusions, in sentences."""
    estimating_images: int = 0
    """If the prior was swept: number of other images that gave the statistics, without labels."""
    choosing_images: int
    confirming_images: int
    warnings: tuple[str, ...] = ()
    """Warnings about the images that chose the setting."""
    matched_classes: tuple[int, int] | None = None
    """Number of classes of data and network, if they were matched by name."""
    bad_images: tuple[str, ...] = ()
    preprocessing: Preprocessing | None = None
    tta: str | None = None
    views: int = 1
    device: str = "cpu"
    precision: Precision = Precision.FLOAT32
    image_forwards: int
    """Number of predictions, views not counted."""
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
