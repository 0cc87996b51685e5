"""How much networks vary that were trained alike: in accuracy, in what they say of each image, and inside.

C. Summers and M. Dinneen, Nondeterminism and Instability in Neural Network Optimization, ICML 2021. Every measure but
the standard deviations is a mean over all pairs of runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

from surgeon.core.presentation import Presentation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

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
        "correlation": _matrix(number, lambda i, j: correlation(ranks[i], ranks[j])),
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


def correlation(one: Array, other: Array) -> float:
    """Pearson's."""
    import numpy as np

    one, other = one - one.mean(), other - other.mean()
    spread = np.sqrt(np.square(one).sum() * np.square(other).sum())
    return float((one * other).sum() / spread) if spread else float("nan")
