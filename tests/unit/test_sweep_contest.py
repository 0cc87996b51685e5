"""Settings compete: a grid measures everything, a race drops who has lost and nobody else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon.core.errors import SurgeonError
from surgeon.measuring.contest import FEWEST_RUNNING, RACE, Contest, Measurement, rounds
from surgeon.metrics import Scores, compare_scores, metrics, summarise
from surgeon.metrics.interval import Z95
from surgeon.results import Method

BATCH = 16
ORIGINAL = "original"


class Field:
    """Logits of three classes, of which 0 is right, for every setting and image."""

    def __init__(self, margins: dict[str, np.ndarray]) -> None:
        self.margins = margins
        self.images = len(next(iter(margins.values())))
        self.batches = math.ceil(self.images / BATCH)

    def scores(self, name: str, first: int, last: int) -> Scores:
        indices = np.arange(first * BATCH, min(last * BATCH, self.images))
        margin = torch.from_numpy(self.margins[name][indices])
        logits = torch.stack([margin, torch.zeros_like(margin), torch.full_like(margin, -1.0)], dim=1)
        scores = Scores()
        scores.update(logits, torch.zeros(len(indices), dtype=torch.int64), indices)
        return scores

    def all_of(self, name: str) -> Scores:
        return self.scores(name, 0, self.batches)

    def contest(self, metric: str = "cross-entropy", method: Method = Method.RACE) -> Contest:
        return Contest(list(self.margins), ORIGINAL, metrics[metric], method, self.batches, BATCH)

    def held(
        self,
        metric: str = "cross-entropy",
        method: Method = Method.RACE,
        watch: Callable[[Contest], None] | None = None,
    ) -> Contest:
        return self.run(self.contest(metric, method), watch)

    def run(self, contest: Contest, watch: Callable[[Contest], None] | None = None) -> Contest:
        while contest.done < contest.batches:
            end = contest.next_end(4)
            contest.add(end, {name: self.scores(name, contest.done, end) for name in contest.running})
            if watch is not None:
                watch(contest)
        return contest


def field_of(means: Iterable[float], images: int = 20 * BATCH, seed: int = 0, own_noise: float = 0.05) -> Field:
    """Settings of given mean margins on images that are hard or easy for all of them; the first is the original."""
    random = np.random.default_rng(seed)
    hardness = random.normal(0, 1, images)
    margins = {
        ORIGINAL if number == 0 else f"alpha {number}": mean + hardness + random.normal(0, own_noise, images)
        for number, mean in enumerate(means)
    }
    return Field(margins)


# --- rounds


def test_a_grid_is_one_round() -> None:
    (only,) = rounds(Method.GRID, 21, 100, 32)
    assert (only.end, only.most) == (100, 21)


def test_a_race_ends_rounds_early_and_thins_the_field() -> None:
    *early, last = rounds(Method.RACE, 21, 100, 64)
    assert [(each.end, each.most) for each in early] == [(8, 10), (16, 5), (35, 2)]
    assert (last.end, last.most) == (100, 21)


@pytest.mark.parametrize("settings", [1, 2, 3, 21, 1001])
@pytest.mark.parametrize("batches", [1, 2, 3, 4, 5, 7, 12, 13, 100, 1563])
@pytest.mark.parametrize("batch_size", [1, 7, 32, 256, 4096])
def test_the_rounds_of_a_race_are_sound(settings: int, batches: int, batch_size: int) -> None:
    found = rounds(Method.RACE, settings, batches, batch_size)
    assert found[-1].end == batches
    assert all(1 <= before.end < after.end for before, after in pairwise(found))
    early = found[:-1]
    assert all(before.most >= after.most >= FEWEST_RUNNING for before, after in pairwise(early))
    for each, (_, fewest, _) in zip(early, RACE, strict=False):
        assert each.end * batch_size >= fewest
    if batches == 1:
        assert not early


@pytest.mark.parametrize("images", [100, 359, 449])
def test_nobody_is_dropped_on_few_images(images: int) -> None:
    """On 359 validation images, values were once thinned out after 32 of them."""
    contest = field_of([0, *(0.01 * number for number in range(20))], images, own_noise=0.5).held("accuracy")
    assert all(len(scores) >= min(images, 250) for scores in contest.scores.values())


# --- grids


@pytest.mark.parametrize("metric", ["accuracy", "cross-entropy", "scaled-cross-entropy"])
def test_a_grid_never_drops(metric: str) -> None:
    field = field_of([0, -5, 3, 0.1])
    contest = field.held(metric, Method.GRID)
    assert not contest.dropped
    assert contest.running == list(field.margins)
    assert {len(scores) for scores in contest.scores.values()} == {field.images}
    assert contest.best() == "alpha 2"


# --- races


def test_a_race_drops_who_is_beaten_and_thins_out_the_rest() -> None:
    field = field_of([0, 2.0, 2.001, 2.002, 2.003, 2.004, 2.005, -1, -2], own_noise=0.5)
    contest = field.held()
    assert contest.dropped["alpha 7"] == contest.dropped["alpha 8"] == "beaten"
    assert "thinned out" in contest.dropped.values()
    assert ORIGINAL not in contest.dropped
    assert ORIGINAL in contest.running


def test_survivors_and_the_original_have_seen_all_images() -> None:
    field = field_of([0, 1, 1.1, 1.2, 1.3, -1, -2])
    contest = field.held()
    assert contest.dropped
    for name in field.margins:
        seen = len(contest.scores[name])
        assert (seen == field.images) == (name not in contest.dropped), name
    assert contest.best() in contest.running


def test_the_original_stays_even_if_it_is_the_worst_by_far() -> None:
    field = field_of([-9, 1, 2, 3, 4])
    contest = field.held()
    assert len(contest.scores[ORIGINAL]) == field.images
    assert ORIGINAL not in contest.dropped


def test_no_one_is_dropped_who_leads_or_ties_with_the_leader() -> None:
    """Two equal settings are not `beaten` by one another."""
    field = field_of([0, 1])
    field.margins["alpha 2"] = field.margins["alpha 1"]
    contest = field.held()
    assert "beaten" not in contest.dropped.values()


@pytest.mark.parametrize("method", Method)
def test_every_point_has_its_gain_on_the_images_that_it_saw(method: Method) -> None:
    field = field_of([0, 1, 1.1, 1.2, -1, -2, -3])
    contest = field.held("scaled-cross-entropy", method)
    assert set(contest.gains) == set(field.margins) - {ORIGINAL}
    for name, gain in contest.gains.items():
        assert gain.images == len(contest.scores[name])
        assert gain.metric == "scaled-cross-entropy"
    assert contest.gains["alpha 3"].better
    assert contest.gains["alpha 6"].difference > 0


def test_who_is_dropped_is_compared_by_the_other_metrics_as_well() -> None:
    """On the images that both have seen, so that reports can draw all their curves."""
    field = field_of([0, 1, 1.1, 1.2, -1, -2, -3])
    names = ("cross-entropy", "scaled-cross-entropy")
    contest = Contest(
        list(field.margins),
        ORIGINAL,
        metrics["accuracy"],
        Method.RACE,
        field.batches,
        BATCH,
        [metrics[name] for name in names],
    )
    field.run(contest)
    assert contest.dropped
    for dropped in contest.dropped:
        batches = math.ceil(len(contest.scores[dropped]) / BATCH)
        expected = [
            compare_scores(metrics[name], contest.scores[dropped], field.scores(ORIGINAL, 0, batches)) for name in names
        ]
        found = contest.other_gains[dropped]
        assert [gain.metric for gain in found] == list(names)
        assert [(gain.difference, gain.low, gain.high) for gain in found] == [
            (each.difference, each.low, each.high) for each in expected
        ]


def test_a_metric_without_numbers_per_image_only_thins_out() -> None:
    contest = field_of([0, 1, 1.1, 1.2, -1, -2, -3]).held("ece")
    assert set(contest.dropped.values()) == {"thinned out"}


def test_a_race_of_one_batch_is_a_grid() -> None:
    field = field_of([0, 1, -5, -9], images=BATCH)
    contest = field.held()
    assert not contest.dropped
    assert contest.best() == "alpha 1"


def test_a_single_image_drops_nobody_as_beaten() -> None:
    contest = field_of([0, 1, -5, -9], images=BATCH + 1).held()
    assert len(contest.scores[ORIGINAL]) == BATCH + 1
    contest = Contest(
        [ORIGINAL, "alpha 1", "alpha 2", "alpha 3"], ORIGINAL, metrics["cross-entropy"], Method.RACE, 2, 1
    )
    field = field_of([0, 1, -5, -9], images=2)
    for index in range(2):
        scores = {}
        for name in contest.running:
            scores[name] = Scores()
            margin = float(field.margins[name][index])
            scores[name].update(torch.tensor([[margin, 0.0, -1.0]]), torch.tensor([0]), [index])
        contest.add(index + 1, scores)
    assert "beaten" not in contest.dropped.values()


# --- ties


@pytest.mark.parametrize("method", Method)
def test_equal_settings_leave_the_original(method: Method) -> None:
    margins = np.random.default_rng(0).normal(1, 1, 10 * BATCH)
    field = Field(dict.fromkeys(["alpha -1", ORIGINAL, "alpha 1", "alpha 2"], margins))
    assert field.held("accuracy", method).best() == ORIGINAL


def test_of_equal_settings_that_nearest_to_the_original_is_chosen() -> None:
    random = np.random.default_rng(0)
    better = random.normal(2, 1, 10 * BATCH)
    names = ["a", "b", "c", ORIGINAL, "d", "e"]
    field = Field(dict.fromkeys(names, better) | {ORIGINAL: better - 1})
    assert field.held("cross-entropy", Method.GRID).best() in {"c", "d"}
    field.margins["b"] = field.margins["c"] = field.margins["d"] = better - 0.5
    assert field.held("cross-entropy", Method.GRID).best() == "e"


def test_equal_accuracies_go_to_the_value_nearest_to_the_original_whatever_the_likelihood() -> None:
    right, wrong = np.full(4 * BATCH, 1.0), np.where(np.arange(4 * BATCH) % 4 == 0, -1.0, 1.0)
    field = Field({ORIGINAL: wrong, "alpha 1": right * 0.1, "alpha 2": right, "alpha 3": right * 9})
    contest = field.held("accuracy", Method.GRID)
    figures = {name: summarise(scores) for name, scores in contest.scores.items()}
    assert [record.accuracy for record in figures.values()] == [0.75, 1, 1, 1]
    assert min(figures, key=lambda name: figures[name].cross_entropy) == "alpha 3"
    assert contest.best() == "alpha 1"
    field.margins[ORIGINAL] = right * 0.01
    assert field.held("accuracy", Method.GRID).best() == ORIGINAL


# --- logits that are not numbers


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("metric", ["accuracy", "cross-entropy", "scaled-cross-entropy", "ece"])
def test_a_setting_with_nan_logits_loses_and_the_rest_goes_on(metric: str, method: Method) -> None:
    field = field_of([0, 5, 1, 0.5])
    field.margins["alpha 1"][7] = math.nan  # the best by far, but for one image
    contest = field.held(metric, method)
    record = summarise(contest.scores["alpha 1"])
    assert record.nan_images == 1
    assert contest.best() != "alpha 1"
    if metric != "ece":
        assert contest.best() == "alpha 2"
        assert contest.gains["alpha 2"].better


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("metric", ["accuracy", "cross-entropy", "scaled-cross-entropy", "ece"])
def test_nan_everywhere_leaves_the_original(metric: str, method: Method) -> None:
    field = Field({name: np.full(6 * BATCH, math.nan) for name in ("alpha -1", ORIGINAL, "alpha 1", "alpha 2")})
    assert field.held(metric, method).best() == ORIGINAL


def test_nan_in_the_original_alone_lets_others_win() -> None:
    field = field_of([0, 1, -1])
    field.margins[ORIGINAL][3] = math.nan
    contest = field.held("cross-entropy")
    assert contest.best() == "alpha 1"
    assert contest.gains["alpha 1"].difference == -math.inf


# --- bookkeeping


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("count", [1, 2, 3, 21])
@pytest.mark.parametrize("images", [1, BATCH, BATCH + 1, 20 * BATCH - 3, 200 * BATCH])
def test_planned_work_is_never_exceeded(method: Method, count: int, images: int) -> None:
    field = field_of([number / 10 for number in range(count)], images)
    plan, done = [field.contest(method=method).planned], [0]

    def watch(contest: Contest) -> None:
        done.append(contest.forwards)
        plan.append(contest.planned)

    contest = field.held(method=method, watch=watch)
    assert plan[0] <= field.batches * count
    assert all(before >= after >= 0 for before, after in pairwise(plan))
    assert plan[-1] == 0
    assert contest.forwards == sum(len(scores) for scores in contest.scores.values())
    for forwards, still in zip(done, plan, strict=True):  # in images and in batches of up to 16
        assert math.ceil(forwards / BATCH) + still <= plan[0] + count
    if method is Method.RACE and count == 21 and images > 100 * BATCH:
        assert contest.forwards < 0.3 * images * count


def test_blocks_end_where_rounds_do() -> None:
    contest = field_of([0, 1, 2], images=50 * BATCH).contest()
    assert contest.next_end(3) == 3
    assert contest.next_end(100) == 16  # 250 images, which are more than 8%
    contest = field_of([0, 1, 2], images=500 * BATCH).contest()
    assert contest.next_end(100) == 40  # 8%
    assert Measurement(["a"], 50).next_end(100) == 50


def test_scores_of_other_settings_than_those_running_are_refused() -> None:
    field = field_of([0, 1, 2])
    for measurement in (field.contest(), Measurement(list(field.margins), field.batches)):
        with pytest.raises(SurgeonError, match="do not belong to the settings that are still running"):
            measurement.add(1, {ORIGINAL: field.scores(ORIGINAL, 0, 1)})
        assert measurement.done == measurement.forwards == 0


def test_a_round_without_images_drops_nobody() -> None:
    """As with --skip-bad, if the few images of the first round cannot be read."""
    field = field_of([0, 1, -1], images=3 * BATCH)
    contest = field.contest()
    contest.add(1, {name: Scores() for name in contest.running})
    while contest.done < contest.batches:
        end = contest.next_end(4)
        contest.add(end, {name: field.scores(name, contest.done, end) for name in contest.running})
    assert contest.best() == "alpha 1"


# --- what a race is worth


@settings(max_examples=10, deadline=None)
@given(
    peak=st.floats(0, 1),
    height=st.floats(0, 2),
    seed=st.integers(0, 10**6),
    images=st.integers(20 * BATCH, 40 * BATCH),
    metric=st.sampled_from(["cross-entropy", "scaled-cross-entropy", "accuracy"]),
)
def test_a_race_chooses_no_worse_than_a_grid_but_for_noise(
    peak: float, height: float, seed: int, images: int, metric: str
) -> None:
    """On smooth curves, as those of alpha are. Images differ in what suits them, as real ones do."""
    random = np.random.default_rng(seed)
    hardness, taste = random.normal(0.5, 1, images), random.normal(0, 0.15, images)
    values = np.linspace(0, 1, 11)
    field = Field(
        {
            ORIGINAL if number == 0 else f"alpha {number}": hardness - height * (value - peak - taste) ** 2
            for number, value in enumerate(values)
        }
    )
    chosen = field.held(metric).best()
    best = max(field.margins, key=lambda name: metrics[metric].merit(summarise(field.all_of(name))))
    compared = compare_scores(metrics[metric], field.all_of(chosen), field.all_of(best))
    worse = -compared.difference if metrics[metric].higher_is_better else compared.difference
    error = (compared.high - compared.low) / (2 * Z95)
    assert worse >= 0
    assert worse <= max(4.5 * error, 1e-3), f"{chosen} instead of {best}"
