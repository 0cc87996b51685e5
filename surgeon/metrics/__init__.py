"""How good predictions are: one file per family of metrics, streamed image by image."""

from surgeon.metrics.accumulator import ImageScores, Part, Scores
from surgeon.metrics.base import Metric, metrics, register
from surgeon.metrics.interval import Interval, PairedComparison, compare, compare_scores, wilson_interval
from surgeon.metrics.summary import Metrics, summarise
from surgeon.metrics.temperature import TemperatureFit, fit_temperature

__all__ = [
    "ImageScores",
    "Interval",
    "Metric",
    "Metrics",
    "PairedComparison",
    "Part",
    "Scores",
    "TemperatureFit",
    "compare",
    "compare_scores",
    "fit_temperature",
    "metrics",
    "register",
    "summarise",
    "wilson_interval",
]
