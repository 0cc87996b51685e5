"""What `robustness` finds out."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from surgeon.core.devices import Precision
from surgeon.metrics import Metrics
from surgeon.models.origin import Preprocessing
from surgeon.results.base import Gain, Result


class ConditionFigures(Result):
    """A network under one condition."""

    condition: str
    """With its options: `gaussian-noise:severity=3`."""
    name: str
    """Without them."""
    family: str
    severity: int | None = None
    """Of a corruption, 1 to 5."""
    options: dict[str, Any] = Field(default_factory=dict)
    metrics: Metrics
    against_clean: Gain | None = None
    """In accuracy, on the same images; None for clean images, and where there are none."""
    against_baseline: Gain | None = None
    """The same against the first network under the same condition; None for the first network."""

    @property
    def error(self) -> float:
        return 1 - (self.metrics.value(self.metrics.primary) or 0.0)


class Difference(Result):
    """By how much a figure differs from that of the first network, with its 95% interval."""

    difference: float
    low: float
    high: float

    @property
    def within_noise(self) -> bool:
        return self.low <= 0 <= self.high


class Figure(Result):
    """One figure with its 95% interval, of which the images are the sampling unit."""

    key: str
    """What it is: `clean-error`, `corruption-error`, `loss`, `mce`, `relative-mce`, or the name of a metric."""
    value: float
    low: float
    high: float
    against_baseline: Difference | None = None


class CorruptionFigures(Result):
    """A network under one corruption, over its severities."""

    corruption: str
    family: str
    severities: tuple[int, ...]
    error: Figure
    """Mean over the severities."""
    relative_to_alexnet: float | None = None
    """The error over AlexNet's, the CE of the paper; only where the images are ImageNet's at 224 pixels."""


class AttackCheck(Result):
    """Whether an attack that has to be the stronger one is."""

    expectation: str
    weaker: str
    stronger: str
    weaker_accuracy: float
    stronger_accuracy: float
    probability: float
    """Of a difference like this or larger if both were equally strong."""
    passed: bool


class NetworkRobustness(Result):
    """One network under all conditions."""

    model: str
    rewrites: str
    preprocessing: Preprocessing
    conditions: tuple[ConditionFigures, ...]
    corruptions: tuple[CorruptionFigures, ...] = ()
    figures: tuple[Figure, ...] = ()
    """Clean images, the means over all corruptions, and calibration under them."""
    attack_checks: tuple[AttackCheck, ...] = ()

    @property
    def clean(self) -> ConditionFigures | None:
        return next((one for one in self.conditions if one.name == "clean"), None)

    def figure(self, key: str) -> Figure | None:
        return next((one for one in self.figures if one.key == key), None)


class Robustness(Result):
    """The result of `robustness`, `result.json`."""

    schema_version: int = 1
    data: str
    split: str
    images: int
    networks: tuple[NetworkRobustness, ...]
    """The first is the baseline."""
    complete: bool = False
    """Whether the corruptions are all fifteen at all five severities, as in the published figures."""
    made_here: bool = True
    """Whether surgeon has made the conditions; otherwise the data hold them."""
    seed: int = 0
    warnings: tuple[str, ...] = ()
    tta: str | None = None
    views: int = 1
    device: str
    precision: Precision
    matched_classes: tuple[int, int] | None = None
    """How many classes the data and the network have, where they were matched by name."""
    bad_images: tuple[str, ...] = ()
    seconds: float
