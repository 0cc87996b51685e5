"""How good predictions are: one file per family of metrics, streamed sample by sample, with intervals.

Which networks are compared on which samples is decided in `measuring` and `commands`.
"""

from surgeon.metrics.accumulator import ImageScores, Scores
from surgeon.metrics.base import Metric, metrics, register
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
from surgeon.metrics.temperature import TemperatureFit, fit_temperature

__all__ = [
    "GROUPS",
    "ImageScores",
    "Interval",
    "Metric",
    "Metrics",
    "PairedComparison",
    "Scores",
    "TemperatureFit",
    "compare",
    "compare_scores",
    "figure_interval",
    "fit_temperature",
    "group_of",
    "intervals",
    "metrics",
    "proportion_interval",
    "register",
    "summarise",
]
