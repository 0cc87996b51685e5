"""How good predictions are: one file per family of metrics, streamed sample by sample, with intervals.

Which networks are compared on which samples is decided in `measuring` and `commands`. What computes is
imported on first use, so that metrics can be listed without waiting for numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from surgeon.core.presentation import Presentation, plain
from surgeon.metrics.base import Metric, in_order, metrics, presentation_of, register

if TYPE_CHECKING:
    from surgeon.metrics.accumulator import ImageScores, Scores
    from surgeon.metrics.groups import GROUPS, group_of
    from surgeon.metrics.interval import (
        Interval,
        PairedComparison,
        compare,
        compare_scores,
        figure_interval,
        proportion_interval,
    )
    from surgeon.metrics.summary import Metrics, intervals, summarise
    from surgeon.metrics.temperature_fit import TemperatureFit, fit_temperature

__all__ = [
    "GROUPS",
    "ImageScores",
    "Interval",
    "Metric",
    "Metrics",
    "PairedComparison",
    "Presentation",
    "Scores",
    "TemperatureFit",
    "compare",
    "compare_scores",
    "figure_interval",
    "fit_temperature",
    "group_of",
    "in_order",
    "intervals",
    "metrics",
    "plain",
    "presentation_of",
    "proportion_interval",
    "register",
    "summarise",
]

_HOMES = {
    "GROUPS": "groups",
    "ImageScores": "accumulator",
    "Interval": "interval",
    "Metrics": "summary",
    "PairedComparison": "interval",
    "Scores": "accumulator",
    "TemperatureFit": "temperature_fit",
    "compare": "interval",
    "compare_scores": "interval",
    "figure_interval": "interval",
    "fit_temperature": "temperature_fit",
    "group_of": "groups",
    "intervals": "summary",
    "proportion_interval": "interval",
    "summarise": "summary",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
