"""How much better a setting is than another on the same images, as a record."""

from __future__ import annotations

from surgeon.metrics import Metric, Scores, compare_scores
from surgeon.results import Gain


def gain_over(
    baseline: Scores, candidate: Scores, metric: Metric, fitted_on: tuple[Scores, Scores] | None = None
) -> Gain:
    """The gain of a candidate; `fitted_on` are candidate's and baseline's scores that temperatures are fitted on."""
    compared = compare_scores(metric, candidate, baseline, fitted_on)
    return Gain(
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        images=compared.images,
        difference=compared.difference,
        low=compared.low,
        high=compared.high,
        gained=compared.gained,
        lost=compared.lost,
    )
