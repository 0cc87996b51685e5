"""What a metric is: a name, what it says, which direction is better, and how it is computed.

This module and all others of this folder import torch and scipy only inside functions, so that
`surgeon ls metrics` and `--help` can name every metric without waiting for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.core.registry import Registry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from surgeon.metrics.accumulator import ImageScores
    from surgeon.metrics.spread import Spread
    from surgeon.metrics.summary import Metrics

R = TypeVar("R")
Compute = Callable[["ImageScores"], float | None]
PerImage = Callable[["ImageScores"], "NDArray[Any]"]
HowFarOff = Callable[["ImageScores"], "Spread"]


@dataclass(frozen=True)
class Metric:
    """One registered metric.

    `compute` returns None where the metric has no meaning (top-5 of three classes). `per_image`
    gives the numbers whose mean the metric is, which is what a paired comparison needs; it is None
    for metrics that are no mean over images. Of those `spread` says how far the figure may be off;
    without it that is found by leaving out groups of images. `bounds` are the least and the largest
    value that there can be.
    """

    name: str
    summary: str
    higher_is_better: bool
    compute: Compute
    per_image: PerImage | None
    spread: HowFarOff | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)

    def merit(self, record: Metrics) -> float:
        """The metric such that more is better; a value that is missing or not a number loses to all others."""
        value = record.value(self.name)
        if value is None or math.isnan(value):
            return -math.inf
        return value if self.higher_is_better else -value


metrics: Registry[Metric] = Registry("metric", "surgeon.metrics", Metric)


def register(
    name: str,
    *,
    higher_is_better: bool,
    per_image: PerImage | None = None,
    spread: HowFarOff | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Callable[[Compute], Compute]:
    """Register the decorated function under a name; the first line of its docstring is the summary."""

    def wrap(compute: Compute) -> Compute:
        summary = (compute.__doc__ or "").strip().splitlines()[0]
        per_image_named = _naming(name, per_image) if per_image is not None else None
        named = _naming(name, compute)
        metrics.register(name)(Metric(name, summary, higher_is_better, named, per_image_named, spread, bounds))
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
