"""Variability between runs, against scipy, closed forms and loops over pairs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import ortho_group, spearmanr

from surgeon.metrics.variability import linear_cka, variability

RNG = np.random.default_rng(0)
LABELS = RNG.integers(5, size=60)
LOGITS = [2 * RNG.normal(size=(60, 5)) + 2 * np.eye(5)[LABELS] for _ in range(4)]


def test_every_figure_is_its_formula() -> None:
    found = variability(LOGITS, LABELS)
    probabilities = [np.exp(one) / np.exp(one).sum(1, keepdims=True) for one in LOGITS]
    right = np.array([(one.argmax(1) == LABELS).mean() for one in LOGITS])
    losses = np.array([-np.log(one[range(60), LABELS]).mean() for one in probabilities])
    pairs = list(combinations(range(4), 2))
    assert found.runs == 4
    assert found.accuracy.value == pytest.approx(100 * np.sqrt(((right - right.mean()) ** 2).mean()))
    assert found.cross_entropy.value == pytest.approx(np.sqrt(((losses - losses.mean()) ** 2).mean()))
    disagreements = [(LOGITS[i].argmax(1) != LOGITS[j].argmax(1)).mean() for i, j in pairs]
    assert found.disagreement == pytest.approx(100 * np.mean(disagreements))
    correlations = [spearmanr(LOGITS[i].ravel(), LOGITS[j].ravel()).statistic for i, j in pairs]
    assert found.correlation == pytest.approx(np.mean(correlations))
    gains = [
        ((probabilities[i] + probabilities[j]).argmax(1) == LABELS).mean() - (right[i] + right[j]) / 2 for i, j in pairs
    ]
    assert found.ensembling == pytest.approx(100 * np.mean(gains))
    assert found.similarity is None


def test_equal_logits_share_ranks() -> None:
    logits = [one.round() for one in LOGITS[:2]]
    expected = spearmanr(logits[0].ravel(), logits[1].ravel()).statistic
    assert variability(logits, LABELS).correlation == pytest.approx(expected)


def test_the_same_network_twice_does_not_vary() -> None:
    found = variability([LOGITS[0]] * 3, LABELS, [LOGITS[0]] * 3)
    assert (found.accuracy.value, found.accuracy.error, found.disagreement, found.ensembling) == (0, 0, 0, 0)
    assert found.correlation == pytest.approx(1)
    assert found.similarity == pytest.approx(1)


def test_similarity_ignores_rotation_scale_and_shift_and_nothing_else() -> None:
    features = RNG.normal(size=(200, 6))
    turned = 3 * features @ ortho_group.rvs(6, random_state=0) + 5
    assert linear_cka(features, turned) == pytest.approx(1)
    assert linear_cka(features, RNG.normal(size=(200, 6))) < 0.2
    stretched = features * np.array([10, 1, 1, 1, 1, 1])
    centred, other = features - features.mean(0), stretched - stretched.mean(0)
    gram, gram_other = centred @ centred.T, other @ other.T
    expected = (gram * gram_other).sum() / np.sqrt((gram**2).sum() * (gram_other**2).sum())
    assert linear_cka(features, stretched) == pytest.approx(expected)


def test_the_bootstrap_error_is_that_of_repeated_samples() -> None:
    """Over many samples of 30 runs, the error is about the spread of the standard deviation."""
    from surgeon.metrics.variability import _deviation

    samples = [RNG.normal(size=30) for _ in range(200)]
    spread = np.std([sample.std() for sample in samples])
    assert np.mean([_deviation(sample, 0).error for sample in samples[:20]]) == pytest.approx(spread, rel=0.2)


def test_one_run_does_not_vary() -> None:
    with pytest.raises(ValueError, match="two runs"):
        variability(LOGITS[:1], LABELS)
