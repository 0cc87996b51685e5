"""What a metric is: a name, what it says, which direction is better, how it is computed, and how it is shown.

This module and those that register metrics import numpy, torch and scipy only when they compute, so that
`surgeon ls metrics` and `--help` can name every metric without waiting for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from surgeon.core.entry import Entry, summary_of
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.core.presentation import Presentation, plain
from surgeon.core.registry import Registry
from surgeon.core.specs import Options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from surgeon.metrics.accumulator import ImageScores
    from surgeon.metrics.spread import Spread
    from surgeon.metrics.summary import Metrics

R = TypeVar("R")
Compute = Callable[["ImageScores"], float | None]
PerImage = Callable[["ImageScores"], "NDArray[Any]"]
HowFarOff = Callable[["ImageScores"], "Spread"]

RESERVED = ("images", "nan-images", "accuracy-low", "accuracy-high", "temperature", "others")
"""What a record of figures says besides the metrics, or once did."""


@dataclass(frozen=True)
class Metric(Entry[Options]):
    """One registered metric.

    `compute` returns None where the metric has no meaning (top-5 of three classes). `per_image`
    gives the numbers whose mean the metric is, which is what a paired comparison needs; it is None
    for metrics that are no mean over images. Of those `spread` says how far the figure may be off;
    without it that is found by leaving out groups of images. `bounds` are the least and the largest
    value that there can be. Tables show metrics by `rank`; where there is no room for all, they show the
    `essential` ones.
    """

    noun = "metric"
    listed = "metrics"

    higher_is_better: bool
    compute: Compute
    per_image: PerImage | None
    shown: Presentation
    spread: HowFarOff | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)
    rank: int = 100
    essential: bool = False
    of_classes: bool = True
    """Whether it judges predicted classes, so that intervals can reckon with images that were not seen."""
    only_masks: bool = False
    """Whether nothing but masks has a value of it."""

    def of(self, images: ImageScores) -> Metric:
        """The metric as it is computed of such images: of masks in its own way, if it has one."""
        if not images.of_masks:
            return self
        own = ON_MASKS.get(self.name)
        if own is None:
            return replace(self, compute=_no_value, per_image=None, spread=None, of_classes=False)
        return replace(self, compute=own[0], per_image=None, spread=own[1], of_classes=False)

    def applies_to(self, images: ImageScores) -> bool:
        """Whether such images can have a value of it."""
        return self.applies_to_masks(images.of_masks)

    def applies_to_masks(self, masks: bool) -> bool:
        """Whether masks, or what is no mask, can have a value of it."""
        return self.name in ON_MASKS if masks else not self.only_masks

    @property
    def key(self) -> str:
        """Under which a record holds its value."""
        return self.name.replace("-", "_")

    def merit(self, record: Metrics) -> float:
        """The metric such that more is better; a value that is missing or not a number loses to all others."""
        value = record.value(self.name)
        if value is None or math.isnan(value):
            return -math.inf
        return value if self.higher_is_better else -value

    def facts(self) -> dict[str, Any]:
        return {"better": "higher" if self.higher_is_better else "lower", "label": self.shown.label}


def _no_value(images: ImageScores) -> None:  # noqa: ARG001
    return None


ON_MASKS: dict[str, tuple[Compute, HowFarOff]] = {}
"""How metrics are computed of masks, and how far they may be off."""


def on_masks(name: str, *, spread: HowFarOff) -> Callable[[Compute], Compute]:
    """Let the decorated function compute a registered metric of masks."""

    def wrap(compute: Compute) -> Compute:
        ON_MASKS[name] = (_naming(name, compute), spread)
        return compute

    return wrap


metrics: Registry[Metric] = Registry(
    Metric.noun,
    "surgeon.metrics",
    Metric,
    without=(
        "accumulator",
        "groups",
        "imagined",
        "interval",
        "mask_scores",
        "own",
        "packing",
        "pooling",
        "seeds",
        "summary",
        "temperature_fit",
        "variability",
    ),
)


def in_order() -> list[Metric]:
    """All metrics, as tables show them."""
    return sorted((metrics[name] for name in metrics), key=lambda metric: (metric.rank, metric.name))


def register(
    name: str,
    *,
    higher_is_better: bool,
    label: str | None = None,
    heading: str | None = None,
    unit: str = "",
    format: str = ".4f",
    per_image: PerImage | None = None,
    spread: HowFarOff | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    rank: int = 100,
    essential: bool = False,
    paper: str = "",
    only_masks: bool = False,
) -> Callable[[Compute], Compute]:
    """Register the decorated function under a name; the first line of its docstring is the summary.

    Args:
        name: What people type after `--metric`; with underscores, its key in records.
        higher_is_better: The direction.
        label: What to call it in a sentence; default: its name.
        heading: What to call it above a column; default: the label.
        unit: What it is counted in, if that is worth saying.
        format: Of its numbers: `.4f`, or `.2%` for a share of the images.
        per_image: The numbers whose mean it is.
        spread: How far it may be off, if it is no mean.
        bounds: The least and the largest value that there can be.
        rank: Its place in tables; those of surgeon itself begin at 0.
        essential: Whether tables show it that have no room for all.
        paper: Where it is from.
        only_masks: Whether nothing but masks has a value of it: `on_masks` registers how it is computed.
    """

    def wrap(compute: Compute) -> Compute:
        if name in RESERVED:
            raise SurgeonError(f"A metric cannot be called {name!r}: records use that name for something else.")
        metrics.register(name)(
            Metric(
                name=name,
                summary=summary_of(compute, Metric.noun, name),
                paper=paper,
                config=Options,
                higher_is_better=higher_is_better,
                compute=_naming(name, compute),
                per_image=_naming(name, per_image) if per_image is not None else None,
                shown=Presentation(label or name, heading or label or name, unit, format),
                spread=spread,
                bounds=bounds,
                rank=rank,
                essential=essential,
                only_masks=only_masks,
            )
        )
        return compute

    return wrap


def _naming(name: str, compute: Callable[[ImageScores], R]) -> Callable[[ImageScores], R]:
    """The same, but what it raises says which metric it was: all of them are computed, whichever was asked for."""

    @wraps(compute)
    def run(images: ImageScores) -> R:
        try:
            return compute(images)
        except SurgeonError:
            raise
        except Exception as error:  # somebody else's code raises anything
            reason = next(iter(str(error).strip().splitlines()), "no message").rstrip(".")
            raise SurgeonError(
                f"The metric {name!r} cannot be computed: {type(error).__name__}: {reason}.",
                "If a package has added it, mend or remove that package; SURGEON_DEBUG=1 shows the traceback.",
                ExitCode.FAILED,
            ) from error

    return run


def presentation_of(name: str) -> Presentation:
    """How a metric is shown, as it says itself; of any other number, and of a metric that is not installed, plainly."""
    return metrics[name].shown if name in metrics else plain(name)
