"""Variability between runs, against scipy, closed forms and loops over pairs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import ortho_group, spearmanr

from surgeon.metrics.variability import MEASURES, Measure, Runs, compare_runs, linear_cka
from surgeon.metrics.variability_interval import interval_of_ratio, interval_over_runs, ratio, standard_error

RNG = np.random.default_rng(0)
LABELS = RNG.integers(5, size=60)
LOGITS = [2 * RNG.normal(size=(60, 5)) + 2 * np.eye(5)[LABELS] for _ in range(4)]
ACCURACY, ENTROPY, DISAGREEMENT, CORRELATION, GAIN, SIMILARITY = MEASURES.values()


def values(runs: Runs) -> dict[str, float]:
    return {measure.name: runs.value(measure) for measure in runs.measures}


def test_every_measure_is_its_formula() -> None:
    found = values(compare_runs(LOGITS, LABELS))
    probabilities = [np.exp(one) / np.exp(one).sum(1, keepdims=True) for one in LOGITS]
    right = np.array([(one.argmax(1) == LABELS).mean() for one in LOGITS])
    losses = np.array([-np.log(one[range(60), LABELS]).mean() for one in probabilities])
    pairs = list(combinations(range(4), 2))
    assert found["accuracy-sd"] == pytest.approx(100 * np.sqrt(((right - right.mean()) ** 2).mean()))
    assert found["cross-entropy-sd"] == pytest.approx(np.sqrt(((losses - losses.mean()) ** 2).mean()))
    disagreements = [(LOGITS[i].argmax(1) != LOGITS[j].argmax(1)).mean() for i, j in pairs]
    assert found["disagreement"] == pytest.approx(100 * np.mean(disagreements))
    correlations = [spearmanr(LOGITS[i].ravel(), LOGITS[j].ravel()).statistic for i, j in pairs]
    assert found["correlation"] == pytest.approx(np.mean(correlations))
    gains = [
        ((probabilities[i] + probabilities[j]).argmax(1) == LABELS).mean() - (right[i] + right[j]) / 2 for i, j in pairs
    ]
    assert found["ensembling-gain"] == pytest.approx(100 * np.mean(gains))
    assert "similarity" not in found


def test_equal_logits_share_ranks() -> None:
    logits = [one.round() for one in LOGITS[:2]]
    expected = spearmanr(logits[0].ravel(), logits[1].ravel()).statistic
    assert compare_runs(logits, LABELS).value(CORRELATION) == pytest.approx(expected)


def test_the_same_network_twice_does_not_vary() -> None:
    runs, others = (compare_runs(logits, LABELS, logits) for logits in ([LOGITS[0]] * 3, LOGITS[:3]))
    found = values(runs)
    assert (found["accuracy-sd"], found["disagreement"], found["ensembling-gain"]) == (0, 0, 0)
    assert found["correlation"] == pytest.approx(1)
    assert found["similarity"] == pytest.approx(1)
    assert standard_error(runs, ACCURACY) == 0
    assert interval_over_runs(runs, DISAGREEMENT, 0.025) is None
    assert ratio(runs, others, DISAGREEMENT) == 0
    assert interval_of_ratio(runs, others, DISAGREEMENT, 0.025) is None
    assert ratio(others, runs, DISAGREEMENT) is None


def test_a_run_that_gives_no_numbers_leaves_no_figures() -> None:
    broken = np.where(np.arange(60)[:, None] == 3, np.nan, LOGITS[1])
    runs = compare_runs([LOGITS[0], broken, LOGITS[2]], LABELS)
    assert all(np.isnan(value) for value in values(runs).values())
    assert all(interval_over_runs(runs, measure, 0.025) is None for measure in runs.measures)


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


def jackknife(of: dict[int | None, float], count: int) -> tuple[float, float]:
    """Mean and standard error of the pseudo-values, written out."""
    pseudo = np.array([count * of[None] - (count - 1) * of[left_out] for left_out in range(count)])
    return pseudo.mean(), pseudo.std(ddof=1) / np.sqrt(count)


def test_an_interval_leaves_out_runs_with_all_of_their_pairs() -> None:
    def disagreement(logits: list[np.ndarray]) -> float:
        return float(100 * np.mean([(a.argmax(1) != b.argmax(1)).mean() for a, b in combinations(logits, 2)]))

    others = [LOGITS[number] + RNG.normal(size=(60, 5)) for number in range(4)]
    runs, reference = compare_runs(LOGITS, LABELS), compare_runs(others, LABELS)
    without: dict[int | None, list[int]] = {
        None: [0, 1, 2, 3],
        **{n: [i for i in range(4) if i != n] for n in range(4)},
    }
    mine = {key: disagreement([LOGITS[i] for i in kept]) for key, kept in without.items()}
    theirs = {key: disagreement([others[i] for i in kept]) for key, kept in without.items()}
    assert standard_error(runs, DISAGREEMENT) == pytest.approx(jackknife(mine, 4)[1])
    for found, of in (
        (interval_over_runs(runs, DISAGREEMENT, 0.025), {key: np.log(value) for key, value in mine.items()}),
        (
            interval_of_ratio(runs, reference, DISAGREEMENT, 0.025),
            {key: np.log(value / theirs[key]) for key, value in mine.items()},
        ),
    ):
        mean, error = jackknife(of, 4)
        expected = np.exp(stats.t.interval(0.95, 3, mean, error))
        assert found == pytest.approx(tuple(np.minimum(expected, 100)))
    assert ratio(runs, reference, DISAGREEMENT) == pytest.approx(mine[None] / theirs[None])


def test_intervals_of_deviations_are_those_of_normal_runs() -> None:
    """Chi-squared for one; for a ratio, where the paired test of Pitman and Morgan just does not reject."""
    mine, theirs = RNG.normal(size=7), RNG.normal(size=7)
    theirs[0] = mine[0]
    runs, reference = Runs(7, {"accuracy-sd": mine}), Runs(7, {"accuracy-sd": theirs})
    expected = np.sqrt(6 * mine.var(ddof=1) / stats.chi2.ppf([0.975, 0.025], 6))
    assert interval_over_runs(runs, ACCURACY, 0.025) == pytest.approx(tuple(expected))
    found = interval_of_ratio(runs, reference, ACCURACY, 0.005)
    assert found is not None
    for edge in found:
        assert stats.pearsonr(mine / edge + theirs, mine / edge - theirs).pvalue == pytest.approx(0.01)
    assert interval_of_ratio(runs, runs, ACCURACY, 0.025) == pytest.approx((1, 1))


def test_corrected_intervals_of_ratios_miss_as_seldom_as_they_say() -> None:
    """Of many comparisons, where the jackknife of a variance would miss twice as often."""
    rng, trials, tail, missed = np.random.default_rng(2), 4000, 0.001, 0
    for _ in range(trials):
        runs, others = (Runs(6, {"accuracy-sd": rng.normal(size=6)}) for _ in range(2))
        found = interval_of_ratio(runs, others, ACCURACY, tail)
        assert found is not None
        missed += not found.low <= 1 <= found.high
    assert missed <= 16  # 8 are expected


def test_of_similar_things_what_they_lack_of_one_is_compared() -> None:
    runs = Runs(3, {}, {"correlation": np.full((3, 3), 0.9), "similarity": np.full((3, 3), 0.6)})
    reference = Runs(3, {}, {"correlation": np.full((3, 3), 0.8), "similarity": np.full((3, 3), 0.2)})
    assert ratio(runs, reference, CORRELATION) == pytest.approx(0.5)
    assert ratio(runs, reference, SIMILARITY) == pytest.approx(0.5)
    assert interval_over_runs(runs, SIMILARITY, 0.025) == pytest.approx((0.6, 0.6))


def test_two_runs_have_no_interval() -> None:
    runs = compare_runs(LOGITS[:2], LABELS)
    assert interval_over_runs(runs, DISAGREEMENT, 0.025) is None
    assert standard_error(runs, DISAGREEMENT) is None
    with pytest.raises(ValueError, match="two runs"):
        compare_runs(LOGITS[:1], LABELS)


def of_pairs(draws: np.ndarray, noise: np.ndarray) -> Runs:
    """Pairs that differ by what is particular to each run, and by what is particular to the pair."""
    return Runs(len(draws), {}, {"disagreement": 10 + draws[:, None] + draws + noise + noise.T})


def of_each(draws: np.ndarray, noise: np.ndarray) -> Runs:  # noqa: ARG001
    return Runs(len(draws), {"accuracy-sd": draws}, {})


@pytest.mark.parametrize(("make", "measure", "truth"), [(of_pairs, DISAGREEMENT, 10), (of_each, ACCURACY, 1)])
def test_intervals_contain_the_truth_about_as_often_as_they_say(make: object, measure: Measure, truth: float) -> None:
    assert callable(make)
    rng, trials, hits, ratios = np.random.default_rng(1), 300, 0, 0
    for _ in range(trials):
        runs, others = (make(rng.normal(size=6), 0.3 * rng.normal(size=(6, 6))) for _ in range(2))
        found, of_ratio = interval_over_runs(runs, measure, 0.025), interval_of_ratio(runs, others, measure, 0.025)
        assert found is not None
        assert of_ratio is not None
        hits += found.low <= truth <= found.high
        ratios += of_ratio.low <= 1 <= of_ratio.high
    # 95% of 300, less three standard errors.
    assert hits / trials > 0.91
    assert ratios / trials > 0.91


def test_the_bootstrap_error_is_that_of_repeated_samples() -> None:
    """Over many samples of 30 runs, the error is about the spread of the standard deviation."""
    samples = [RNG.normal(size=30) for _ in range(200)]
    spread = np.std([sample.std() for sample in samples])
    errors = [standard_error(Runs(30, {"accuracy-sd": sample}), ACCURACY) for sample in samples[:20]]
    assert np.mean([error or 0 for error in errors]) == pytest.approx(spread, rel=0.2)
