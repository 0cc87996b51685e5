"""How much better a setting is than another on the same images, as a record."""

from __future__ import annotations

import math
from dataclasses import replace

from surgeon.metrics import Metric, PairedComparison, TemperatureFit, compare_scores, metrics
from surgeon.metrics.interval import compare_images
from surgeon.metrics.pooling import AnyScores
from surgeon.results import Gain


def gain_over(
    baseline: AnyScores, candidate: AnyScores, metric: Metric, fitted_on: tuple[AnyScores, AnyScores] | None = None
) -> Gain:
    """The gain of a candidate; `fitted_on` are candidate's and baseline's scores that temperatures are fitted on."""
    return as_gain(metric.name, metric.higher_is_better, compare_scores(metric, candidate, baseline, fitted_on))


def gain_of_temperature(scores: AnyScores, fitted_on: AnyScores | None = None) -> Gain:
    """What dividing the logits by the fitted temperature does to the cross-entropy of the same network.

    Without `fitted_on` it is fitted on the compared images.
    """
    scaled = scores.images(fitted_on)
    unscaled = replace(scaled, elsewhere=TemperatureFit(1.0, math.nan))
    metric = metrics["scaled-cross-entropy"]
    return as_gain("cross-entropy", metric.higher_is_better, compare_images(metric, scaled, unscaled))


def as_gain(metric: str, higher_is_better: bool, compared: PairedComparison) -> Gain:
    """A comparison on the same images as a record."""
    return Gain(
        metric=metric,
        higher_is_better=higher_is_better,
        images=compared.images,
        difference=compared.difference,
        low=compared.low,
        high=compared.high,
        gained=compared.gained,
        lost=compared.lost,
    )
