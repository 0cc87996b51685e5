"""Figures of the same images under several conditions: what they are, and that their intervals contain the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from surgeon.core.errors import SurgeonError
from surgeon.metrics import Scores, compare_scores, figure_interval, metrics, proportion_interval, summarise
from surgeon.metrics.pooling import ScoresUnder, weighted_difference, weighted_error, wrong

CONDITIONS = 6


def scores_of(logits: torch.Tensor, labels: torch.Tensor) -> Scores:
    scores = Scores()
    scores.update(logits, labels, np.arange(len(labels)))
    return scores


def drawn(seed: int, images: int, skill: float = 1.5, conditions: int = CONDITIONS) -> list[Scores]:
    """Images that are hard or easy under all conditions alike, so that predictions of one are far from independent."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (images,), generator=random)
    ease = torch.randn(images, 1, generator=random) * 2
    own = torch.nn.functional.one_hot(labels, 10)
    return [
        scores_of(torch.randn(images, 10, generator=random) + own * (ease + skill + 0.2 * number), labels)
        for number in range(conditions)
    ]


def under(parts: list[Scores]) -> ScoresUnder:
    return ScoresUnder({str(number): part for number, part in enumerate(parts)})


def test_figures_are_those_of_all_predictions() -> None:
    parts = drawn(0, 300)
    pooled = summarise(under(parts))
    single = [summarise(part) for part in parts]
    for name in ("accuracy", "top5", "cross_entropy"):
        assert getattr(pooled, name) == pytest.approx(np.mean([getattr(one, name) for one in single]))
    everything = [part.images() for part in parts]
    confidence = np.concatenate([each.confidence for each in everything])
    correct = np.concatenate([each.correct for each in everything])
    bins = np.ceil(confidence * 15).astype(int)
    gaps = [abs((confidence - correct)[bins == number].sum()) for number in np.unique(bins)]
    assert pooled.ece == pytest.approx(sum(gaps) / len(confidence))
    assert pooled.images == 300
    assert pooled.scaled_cross_entropy <= pooled.cross_entropy


def test_one_condition_is_no_other_than_plain_scores() -> None:
    (part,) = drawn(1, 200, conditions=1)
    assert summarise(ScoresUnder({"only": part})) == summarise(part)


def test_merging_is_as_if_one_had_seen_all() -> None:
    parts = drawn(2, 60)
    whole = under(parts)
    halves = []
    for places in (slice(0, 30), slice(30, 60)):
        of_half = {}
        for name, part in whole.by_condition.items():
            half = Scores()
            indices = part._indices()[places]
            half.classes = part.classes
            half._grow(indices)
            half._images[indices - half._first] = part._rows(indices)
            of_half[name] = half
        halves.append(ScoresUnder(of_half))
    joined = ScoresUnder({}).merge(halves[0]).merge(halves[1])
    assert np.array_equal(joined.images().correct, whole.images().correct)
    assert len(joined) == 60


def test_other_images_are_refused() -> None:
    mixed = ScoresUnder({"a": drawn(0, 20)[0], "b": drawn(0, 30)[0]})
    with pytest.raises(SurgeonError, match="Not all images"):
        mixed.images()


@pytest.mark.parametrize(
    "metric", ["accuracy", "cross-entropy", "scaled-cross-entropy", "ece", "mad", "aurra", "soft-f1"]
)
def test_intervals_contain_the_truth_because_images_are_the_unit(metric: str) -> None:
    """And would not if every prediction counted as an image of its own."""
    size, samples = 150, 60
    population = drawn(99, 30_000)
    truth = metrics[metric].compute(under(population).images())
    assert truth is not None
    inside = 0
    for seed in range(samples):
        images = under(drawn(seed, size)).images()
        low, high = figure_interval(metrics[metric], images)
        inside += low <= truth <= high
    assert inside / samples >= 0.93 - 3.1 * math.sqrt(0.93 * 0.07 / samples)


def test_predictions_are_no_images() -> None:
    """The interval that takes each prediction for an image misses the truth far too often: the test above can fail."""
    size, samples = 150, 60
    truth = summarise(under(drawn(99, 30_000))).accuracy
    missed = 0
    for seed in range(samples):
        correct = under(drawn(seed, size)).images().correct
        low, high = proportion_interval(int(correct.sum()), len(correct))
        missed += not low <= truth <= high
    assert missed / samples > 0.2


def test_differences_between_networks_contain_the_truth() -> None:
    size, samples = 150, 60
    metric = metrics["accuracy"]

    def pair(seed: int, images: int) -> tuple[ScoresUnder, ScoresUnder]:
        """Both see the same images: the same ease, but noise of their own."""
        random = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, 10, (images,), generator=random)
        ease = torch.randn(images, 1, generator=random) * 2
        own = torch.nn.functional.one_hot(labels, 10)

        def network(skill: float) -> ScoresUnder:
            noise = torch.randn(CONDITIONS, images, 10, generator=random)
            return under([scores_of(each + own * (ease + skill), labels) for each in noise])

        return network(1.5), network(1.8)

    weak, strong = pair(12345, 30_000)
    truth = compare_scores(metric, strong, weak).difference
    errors = [wrong(list(each.by_condition.values())) for each in (strong, weak)]
    weights = np.full(CONDITIONS, 1 / CONDITIONS)
    assert weighted_difference(*errors, weights)[0] == pytest.approx(-truth)
    inside = weighted_inside = 0
    for seed in range(samples):
        weak, strong = pair(seed, size)
        found = compare_scores(metric, strong, weak)
        inside += found.low <= truth <= found.high
        _, (low, high) = weighted_difference(
            wrong(list(strong.by_condition.values())), wrong(list(weak.by_condition.values())), weights
        )
        weighted_inside += low <= -truth <= high
    for share in (inside / samples, weighted_inside / samples):
        assert share >= 0.93 - 3.1 * math.sqrt(0.93 * 0.07 / samples)


def test_a_weighted_error_is_the_formula() -> None:
    errors = wrong(drawn(3, 400))
    weights = np.array([-1.0, 0.2, 0.2, 0.2, 0.2, 0.2])
    value, (low, high) = weighted_error(errors, weights)
    rates = errors.mean(axis=0)
    assert value == pytest.approx(rates[1:].mean() - rates[0])
    assert low < value < high
    spread = (errors @ weights).std(ddof=1) / math.sqrt(400)
    assert high - low == pytest.approx(2 * 1.966 * spread, rel=0.1)


def test_no_mistake_at_all_is_no_proof_of_perfection() -> None:
    value, (low, high) = weighted_error(np.zeros((50, 3)), np.full(3, 1 / 3))
    assert value == low == 0
    assert high > 0.03


@pytest.mark.parametrize("metric", ["accuracy", "scaled-cross-entropy", "ece"])
def test_gains_count_images_not_predictions(metric: str) -> None:
    compared = compare_scores(metrics[metric], under(drawn(2, 50, skill=2)), under(drawn(2, 50)))
    assert compared.images == 50
    alone = compare_scores(metrics[metric], under(drawn(2, 1, skill=2)), under(drawn(2, 1)))
    assert (alone.low, alone.high) == (-math.inf, math.inf) or metric == "accuracy"


@pytest.mark.parametrize("errors", [0, 6, 50])
def test_the_error_under_one_condition_has_the_interval_of_its_accuracy(errors: int) -> None:
    """One number, one interval: Clopper and Pearson's, in every table and picture."""
    value, (low, high) = weighted_error((np.arange(50) < errors).astype(float)[:, None], np.ones(1))
    exact = stats.binomtest(errors, 50).proportion_ci(0.95, "exact")
    assert (value, low, high) == pytest.approx((errors / 50, exact.low, exact.high))
