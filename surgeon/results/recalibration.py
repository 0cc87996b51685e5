"""What `recalibrate` finds out."""

from __future__ import annotations

from surgeon.core.devices import Precision
from surgeon.metrics import Metrics
from surgeon.models.origin import Preprocessing
from surgeon.results.base import Gain, Result
from surgeon.surgery.entropy import EntropyResult
from surgeon.surgery.moments import LayerMovement


class Answers(Result):
    """What a network makes of images, whatever their labels are."""

    confidence: float
    """The mean of the largest probability."""
    classes: int
    """How many different ones it predicts."""
    effective_classes: float
    """The number of equally frequent classes that would be as varied: exp of the entropy of the predicted classes."""


class Change(Result):
    """The network before and after, on the same images, without labels."""

    images: int
    outputs: int
    """How many classes the network knows."""
    before: Answers
    after: Answers
    changed: float
    """The share of images that are taken for another class."""


class Measured(Result):
    """The network before and after, on the same labelled images."""

    data: str
    split: str
    matched_classes: tuple[int, int] | None = None
    """How many classes the data and the network have, where they were matched by name."""
    before: Metrics
    after: Metrics
    gains: tuple[Gain, ...]
    """Of the recalibrated network over the original."""


class Recalibration(Result):
    """What became of a network's statistics, and what that does to its predictions."""

    model: str
    data: str
    split: str
    where: tuple[str, ...] = ()
    rewrites: str
    preprocessing: Preprocessing
    device: str
    precision: Precision
    images: int
    """From which statistics were estimated, without their labels."""
    prior: float | None
    """How many images the old statistics counted for; None where layers that had none got theirs."""
    weight: float
    """Of the new statistics: images / (prior + images)."""
    layers: tuple[LayerMovement, ...]
    """In the order in which images go through them; none where they had no statistics before."""
    collected: tuple[str, ...] = ()
    """Layers that had no statistics."""
    kept: tuple[str, ...] = ()
    """Layers some of whose statistics stayed as they were."""
    entropy: EntropyResult | None = None
    """What entropy minimisation did afterwards, if that was asked for."""
    change: Change
    """On the very images that statistics were estimated from."""
    confirmed: Measured | None = None
    """On images that took no part in that."""
    source: Measured | None = None
    """On images of the original domain."""
    warnings: tuple[str, ...] = ()
    bad_images: tuple[str, ...] = ()
    seconds_estimating: float
    seconds: float
    logits_file: str | None = None
    """With the logits of all images, each half as adapted by the other."""
    checkpoint: str | None = None

    @property
    def matched_classes(self) -> tuple[int, int] | None:
        """How many classes the labelled data and the network have, where they were matched by name."""
        measured = (one for one in (self.confirmed, self.source) if one is not None)
        return next((one.matched_classes for one in measured if one.matched_classes is not None), None)

    @property
    def mean_shift(self) -> float | None:
        """How far means moved, in old standard deviations, on average over the layers."""
        return sum(layer.mean_shift for layer in self.layers) / len(self.layers) if self.layers else None
