"""What the variability of runs may be for other runs: standard errors, intervals and ratios.

Pairs share runs, so they are not independent: their intervals and standard errors leave out one run at a time, with all
of its pairs (the jackknife). Intervals of standard deviations take the figures of runs as normally distributed; the
jackknife of a variance misses too often where many are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from surgeon.metrics.variability import OF_EACH, Measure, Runs, correlation

if TYPE_CHECKING:
    from surgeon.metrics.variability import Array

RESAMPLES = 10_000
FEWEST = 3
"""Runs that leaving one out needs."""


class Spread(NamedTuple):
    """An interval over runs."""

    low: float
    high: float


def standard_error(runs: Runs, measure: Measure, seed: int = 0) -> float | None:
    """Of a standard deviation by the bootstrap of runs, as published; of a mean over pairs by leaving out runs."""
    import numpy as np

    if measure.kind == OF_EACH:
        values = runs.of_each[measure.name]
        draws = np.random.default_rng(seed).integers(runs.count, size=(RESAMPLES, runs.count))
        return float(values[draws].std(1).std())
    found = _pseudo_values(lambda without: runs.value(measure, without), runs.count)
    return None if found is None else float(found.std(ddof=1) / math.sqrt(runs.count))


def interval_over_runs(runs: Runs, measure: Measure, tail: float) -> Spread | None:
    """What a measure may be for other runs; None for too few of them, or where runs do not differ.

    For a mean over pairs, Student's interval of the pseudo-values of the jackknife, of the logarithm for what cannot be
    negative (J. Arvesen, Jackknifing U-statistics, 1969); for a standard deviation the one of chi-squared.

    Args:
        runs: Compared with one another.
        measure: By which.
        tail: How often the truth may lie beyond either end.
    """
    if measure.kind == OF_EACH:
        return _of_deviation(runs.of_each[measure.name], tail)
    if measure.is_signed:
        found = _student(lambda without: runs.value(measure, without), runs.count, tail)
    else:
        found = _student(lambda without: _log(measure.amount(runs.value(measure, without))), runs.count, tail)
        if found is not None:  # `amount` is its own inverse
            found = Spread(*sorted(measure.amount(_exp(end)) for end in found))
    if found is None:
        return None
    least, most = measure.bounds
    return Spread(max(found.low, least), min(found.high, most))


def ratio(runs: Runs, reference: Runs, measure: Measure) -> float | None:
    """How much runs vary in comparison with others; None where that has no meaning."""
    mine, theirs = (measure.amount(one.value(measure)) for one in (runs, reference))
    has_meaning = theirs > 0 and (mine > 0 if measure.is_signed else mine >= 0)
    return mine / theirs if has_meaning else None


def interval_of_ratio(runs: Runs, reference: Runs, measure: Measure, tail: float) -> Spread | None:
    """The interval of the ratio for other runs; None for too few of them, or where some do not differ.

    Runs at the same place of both belong together: they share a seed, and may even be the same networks. For means over
    pairs they are left out together; standard deviations are compared as paired ones (Pitman, 1939; Morgan, 1939).

    Args:
        runs: As many as the reference has.
        reference: In comparison with which.
        measure: By which.
        tail: How often the truth may lie beyond either end.
    """
    if runs.count != reference.count:
        raise ValueError(f"{runs.count} runs cannot be paired with {reference.count}")

    if measure.kind == OF_EACH:
        return _of_deviations(runs.of_each[measure.name], reference.of_each[measure.name], tail)

    def difference(without: int | None) -> float:
        mine, theirs = (_log(measure.amount(one.value(measure, without))) for one in (runs, reference))
        return mine - theirs

    found = _student(difference, runs.count, tail)
    return None if found is None else Spread(_exp(found.low), _exp(found.high))


def _of_deviation(values: Array, tail: float) -> Spread | None:
    from scipy.special import chdtri  # type: ignore[import-untyped]

    squares = _squares(values)
    if len(values) < FEWEST or not squares > 0:
        return None
    low, high = (math.sqrt(squares / chdtri(len(values) - 1, share)) for share in (tail, 1 - tail))
    return Spread(low, high)


def _of_deviations(mine: Array, theirs: Array, tail: float) -> Spread | None:
    """Where their sum and difference, once scaled by the ratio, are as little correlated as chance makes them."""
    from scipy.special import stdtrit

    squares = _squares(mine), _squares(theirs)
    free = len(mine) - 2
    if len(mine) < FEWEST or not min(squares) > 0:
        return None
    unexplained = max(0.0, 1 - correlation(mine, theirs) ** 2)
    reach = 1 + 2 * unexplained * float(stdtrit(free, 1 - tail)) ** 2 / free
    factor = reach + math.sqrt(reach**2 - 1)
    share = squares[0] / squares[1]
    return Spread(math.sqrt(share / factor), math.sqrt(share * factor))


def _squares(values: Array) -> float:
    """The sum of the squared deviations from the mean; NaN if a value is not finite."""
    import numpy as np

    return float(np.square(values - values.mean()).sum())


def _student(statistic: Callable[[int | None], float], count: int, tail: float) -> Spread | None:
    from scipy.special import stdtrit

    values = _pseudo_values(statistic, count)
    if values is None:
        return None
    mean, reach = float(values.mean()), float(stdtrit(count - 1, 1 - tail) * values.std(ddof=1) / math.sqrt(count))
    return Spread(mean - reach, mean + reach)


def _pseudo_values(statistic: Callable[[int | None], float], count: int) -> Array | None:
    import numpy as np

    if count < FEWEST:
        return None
    values = np.array([count * statistic(None) - (count - 1) * statistic(without) for without in range(count)])
    return values if np.isfinite(values).all() else None


def _log(value: float) -> float:
    return math.log(value) if value > 0 else math.nan


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
