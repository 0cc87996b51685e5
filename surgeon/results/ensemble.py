"""What `ensemble` finds out."""

from __future__ import annotations

from surgeon.core.devices import Precision
from surgeon.metrics import Metrics
from surgeon.models.origin import Preprocessing
from surgeon.results.base import Gain, Result
from surgeon.views import Merge


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
    warnings: tuple[str, ...] = ()
    """What to beware of in the images that members were chosen on."""
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
    matched_classes: tuple[int, int] | None = None
    """How many classes the data and the network have, where they were matched by name."""
    bad_images: tuple[str, ...]
    seconds: float
    checkpoint: str | None = None
    """Where the average of the weights was written."""
