"""How much networks vary that were trained alike: in accuracy, in what they say of each image, and inside.

C. Summers and M. Dinneen, Nondeterminism and Instability in Neural Network Optimization, ICML 2021. Every measure but
the standard deviations is a mean over all pairs of runs. Pairs share runs, so they are not independent: their intervals
and standard errors leave out one run at a time, with all of its pairs (the jackknife). Intervals of standard deviations
take the figures of runs as normally distributed; the jackknife of a variance misses too often where many are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from surgeon.core.presentation import Presentation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

RESAMPLES = 10_000
FEWEST = 3
"""Runs that leaving one out needs."""
OF_EACH, OF_PAIRS = "of each run", "of pairs"


@dataclass(frozen=True)
class Measure:
    """One way to say how much runs vary.

    Args:
        name: In files.
        shown: How its values are written.
        summary: What it is, in a sentence.
        kind: Whether it is a standard deviation over runs or a mean over pairs of runs.
        amount: How much variability a value is, which ratios are of: a correlation of 1 is none.
        amount_name: What that is called.
        is_signed: Whether it may be negative, so that its own interval cannot be one of its logarithm.
        bounds: The least and the largest value that there can be.
    """

    name: str
    shown: Presentation
    summary: str
    kind: str = OF_PAIRS
    amount: Callable[[float], float] = float
    amount_name: str = ""
    is_signed: bool = False
    bounds: tuple[float, float] = (0.0, math.inf)


def _lack(similarity: float) -> float:
    return 1 - similarity


MEASURES: Mapping[str, Measure] = {
    one.name: one
    for one in (
        Measure(
            "accuracy-sd",
            Presentation("SD of accuracy", "accuracy SD", "points", ".2f"),
            "Standard deviation over runs (ddof 0), in points.",
            OF_EACH,
        ),
        Measure(
            "cross-entropy-sd",
            Presentation("SD of cross-entropy", "cross-entropy SD"),
            "Standard deviation over runs (ddof 0), in nats.",
            OF_EACH,
        ),
        Measure(
            "disagreement",
            Presentation("disagreement", "disagreement", "%", ".2f"),
            "Percentage of images for which two runs name different classes.",
            bounds=(0.0, 100.0),
        ),
        Measure(
            "correlation",
            Presentation("rank correlation of logits", "correlation"),
            "Spearman's, of all logits of two runs.",
            amount=_lack,
            amount_name="1 - correlation",
            bounds=(-1.0, 1.0),
        ),
        Measure(
            "ensembling-gain",
            Presentation("gain of ensembling two", "ensembling gain", "points", ".2f"),
            "Accuracy of the averaged probabilities of two runs less their mean accuracy, in points.",
            is_signed=True,
            bounds=(-100.0, 100.0),
        ),
        Measure(
            "similarity",
            Presentation("linear CKA of features", "CKA"),
            "How similar the features of two runs are: 1 for equal ones, up to rotation and scale.",
            amount=_lack,
            amount_name="1 - CKA",
            bounds=(0.0, 1.0),
        ),
    )
}


class Spread(NamedTuple):
    """An interval over runs."""

    low: float
    high: float


@dataclass(frozen=True)
class Runs:
    """What is known of several runs: a number of each, or one of each pair, by the name of the measure."""

    count: int
    of_each: Mapping[str, Array]
    of_pairs: Mapping[str, Array] = field(default_factory=dict)
    """Symmetric; the diagonal means nothing."""

    @property
    def measures(self) -> list[Measure]:
        """Those that can be computed."""
        return [one for name, one in MEASURES.items() if name in self.of_each or name in self.of_pairs]

    def only(self, kept: Sequence[int]) -> Runs:
        """Some of them."""
        import numpy as np

        places = list(kept)
        return Runs(
            len(places),
            {name: values[places] for name, values in self.of_each.items()},
            {name: values[np.ix_(places, places)] for name, values in self.of_pairs.items()},
        )

    def value(self, measure: Measure, without: int | None = None) -> float:
        """A measure of all runs, or of all but one."""
        import numpy as np

        kept = [run for run in range(self.count) if run != without]
        if measure.kind == OF_EACH:
            return float(self.of_each[measure.name][kept].std())
        among = self.of_pairs[measure.name][np.ix_(kept, kept)]
        return float(among[np.triu_indices(len(kept), 1)].mean())


def compare_runs(
    logits: Sequence[Array], labels: NDArray[np.int64], features: Sequence[NDArray[Any]] | None = None
) -> Runs:
    """Compare runs by what their networks say of the same images.

    Args:
        logits: Of each run, (images, classes).
        labels: The class of each image.
        features: Of each run, (images, channels): what its head sees.
    """
    import numpy as np

    number = len(logits)
    if number < 2:
        raise ValueError(f"Variability needs two runs or more, not {number}")
    finite = np.array([bool(np.isfinite(one).all()) for one in logits])
    log_probabilities = [_log_softmax(np.asarray(one, np.float64)) for one in logits]
    right = np.array([(one.argmax(1) == labels).mean() for one in log_probabilities])
    losses = np.array([-one[np.arange(len(labels)), labels].mean() for one in log_probabilities])
    classes = [one.argmax(1) for one in log_probabilities]
    ranks = [_ranks(np.asarray(one, np.float64).ravel()) for one in logits]

    def gain(one: int, other: int) -> float:
        with np.errstate(invalid="ignore"):
            together = np.logaddexp(log_probabilities[one], log_probabilities[other]).argmax(1)
        return float((together == labels).mean() - right[[one, other]].mean())

    of_pairs = {
        "disagreement": _matrix(number, lambda i, j: 100 * float((classes[i] != classes[j]).mean())),
        "correlation": _matrix(number, lambda i, j: _correlation(ranks[i], ranks[j])),
        "ensembling-gain": _matrix(number, lambda i, j: 100 * gain(i, j)),
    }
    if features is not None:
        of_pairs["similarity"] = _matrix(number, lambda i, j: linear_cka(features[i], features[j]))
    # A network that does not give numbers names no classes.
    of_each = {
        "accuracy-sd": np.where(finite, 100 * right, np.nan),
        "cross-entropy-sd": np.where(finite, losses, np.nan),
    }
    both = finite[:, None] & finite
    return Runs(number, of_each, {name: np.where(both, values, np.nan) for name, values in of_pairs.items()})


def linear_cka(one: NDArray[Any], other: NDArray[Any]) -> float:
    """How similar two representations of the same images are: 1 for equal ones, up to rotation and scale.

    S. Kornblith et al., Similarity of Neural Network Representations Revisited, ICML 2019.
    """
    import numpy as np

    one, other = (np.asarray(each, np.float64) - np.mean(each, 0, dtype=np.float64) for each in (one, other))
    shared = np.square(one.T @ other).sum()
    own = np.sqrt(np.square(one.T @ one).sum() * np.square(other.T @ other).sum())
    return float(shared / own) if own else float("nan")


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
    correlation = _correlation(mine, theirs)
    reach = 1 + 2 * max(0.0, 1 - correlation**2) * float(stdtrit(free, 1 - tail)) ** 2 / free
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


def _matrix(number: int, of_pair: Callable[[int, int], float]) -> Array:
    import numpy as np

    found = np.full((number, number), np.nan)
    for i, j in combinations(range(number), 2):
        found[i, j] = found[j, i] = of_pair(i, j)
    return found


def _log_softmax(logits: Array) -> Array:
    import numpy as np

    with np.errstate(invalid="ignore"):
        shifted = logits - logits.max(1, keepdims=True)
        found: Array = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return found


def _ranks(values: Array) -> Array:
    """From 1 on; equal values share the mean of their ranks."""
    import numpy as np

    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    ranks: Array = (last - (counts - 1) / 2)[inverse]
    return ranks


def _correlation(one: Array, other: Array) -> float:
    import numpy as np

    one, other = one - one.mean(), other - other.mean()
    spread = np.sqrt(np.square(one).sum() * np.square(other).sum())
    return float((one * other).sum() / spread) if spread else float("nan")
