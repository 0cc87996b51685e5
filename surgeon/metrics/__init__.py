"""How good predictions are: one file per family of metrics, streamed sample by sample, with intervals.

Which networks are compared on which samples is decided in `measuring` and `commands`.
"""

from surgeon.metrics.accumulator import ImageScores, Scores
from surgeon.metrics.base import Metric, metrics, register
from surgeon.metrics.groups import GROUPS, group_of
from surgeon.metrics.interval import Interval, PairedComparison, compare, compare_scores, wilson_interval
from surgeon.metrics.summary import Metrics, summarise
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
    "fit_temperature",
    "group_of",
    "metrics",
    "register",
    "summarise",
    "wilson_interval",
]
