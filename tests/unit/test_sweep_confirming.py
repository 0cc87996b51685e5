"""The best of several settings on the images held back is a real gain no more often than one of them would be."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch

from surgeon.commands.sweep.confirming import best_of, widened
from surgeon.commands.sweep.investigation import ORIGINAL, Investigation, Question
from surgeon.measuring.comparison import gain_over
from surgeon.measuring.contest import Measurement
from surgeon.measuring.inference import InferenceSettings
from surgeon.metrics import Scores, compare, metrics, summarise
from surgeon.results import Gain, Learned, Learning, Method, Setting

METRIC = metrics["cross-entropy"]
NOMINAL = 0.025


def scores_of(margins: np.ndarray) -> Scores:
    """Of two classes, of which 0 is right."""
    logits = torch.from_numpy(np.stack([margins, np.zeros_like(margins)], axis=1))
    scores = Scores()
    scores.update(logits, torch.zeros(len(margins), dtype=torch.int64), np.arange(len(margins)))
    return scores


def gains_of_settings_that_are_no_better(random: np.random.Generator, settings: int, images: int = 200) -> list[Gain]:
    """Their cross-entropies are off those of the original by chance alone, each in its own way."""
    original = random.exponential(0.5, images)
    gains = []
    for _ in range(settings):
        compared = compare(original + random.normal(0, 0.3, images), original, higher_is_better=False)
        gains.append(
            Gain(
                metric=METRIC.name,
                higher_is_better=False,
                images=images,
                difference=compared.difference,
                low=compared.low,
                high=compared.high,
                gained=compared.gained,
                lost=compared.lost,
            )
        )
    return gains


def test_three_settings_that_are_no_better_are_a_real_gain_as_seldom_as_one() -> None:
    samples = 2000
    most = NOMINAL + 3.1 * math.sqrt(NOMINAL * (1 - NOMINAL) / samples)
    random = np.random.default_rng(0)
    drawn = [gains_of_settings_that_are_no_better(random, 3) for _ in range(samples)]
    real, uncorrected = (
        sum(any(widened(gain, number).better for gain in gains) for gains in drawn) / samples for number in (3, 1)
    )
    assert real <= most
    assert uncorrected > 2 * most  # so the simulation can tell


def gain(difference: float, low: float, high: float) -> Gain:
    return Gain(
        metric="accuracy", higher_is_better=True, images=9, difference=difference, low=low, high=high, gained=1, lost=1
    )


@pytest.mark.parametrize("settings", [1, 2, 3])
def test_intervals_are_widened_by_bonferroni(settings: int) -> None:
    normal = NormalDist()
    factor = normal.inv_cdf(1 - 0.025 / settings) / normal.inv_cdf(0.975)
    found = widened(gain(0.5, 0.3, 0.8), settings)
    assert (found.low, found.high) == pytest.approx((0.5 - 0.2 * factor, 0.5 + 0.3 * factor))
    assert found.difference == 0.5


@pytest.mark.parametrize(
    ("difference", "low", "high"),
    [(math.nan, -math.inf, math.inf), (math.inf, math.inf, math.inf), (0.1, -math.inf, math.inf), (0.0, 0.0, 0.0)],
)
def test_what_has_no_width_or_no_end_stays(difference: float, low: float, high: float) -> None:
    found = widened(gain(difference, low, high), 3)
    assert (found.low, found.high) == (low, high)


def test_the_best_is_the_simplest_of_equal_ones_and_none_that_is_refuted() -> None:
    record = summarise(scores_of(np.array([1.0, 2.0, -1.0])))
    better = record.model_copy(update={"accuracy": 0.9})

    def setting(name: str, figures: object, *gains: Gain) -> Setting:
        return Setting(name=name, choosing=figures, gains=gains)

    open_, worse = gain(0.0, -0.1, 0.1), gain(-0.2, -0.3, -0.1)
    settings = {
        ORIGINAL: setting(ORIGINAL, record),
        "alpha 1": setting("alpha 1", record, open_),
        "per layer": setting("per layer", record, open_),
        "per channel": setting("per channel", better, worse),
    }
    accuracy = metrics["accuracy"]
    assert best_of(["alpha 1", "per layer", "per channel"], ORIGINAL, accuracy, settings) == "alpha 1"
    assert best_of(["per channel"], ORIGINAL, accuracy, settings) == ORIGINAL


# --- the whole way, on made-up networks


class Axis:
    name, original = "alpha", 0.0

    def set(self, value: object) -> None:
        self.value = value

    def passes(self, values: int) -> int:
        return values


class Runner:
    """Gives scores that were made up instead of a network's."""

    def __init__(self, scores: dict[str, Scores]) -> None:
        self.axis, self.scores, self.bad, self.spent = Axis(), scores, {}, {}
        self.inference = InferenceSettings(torch.device("cpu"))

    def hold(self, _: str, contest: Measurement, *__: object) -> None:
        contest.add(contest.batches, {name: self.scores[name] for name in contest.running})

    def once(self, phase: str, _: object) -> dict[str, object]:
        return Learned(
            kind=Learning(phase), alphas={}, numbers=1, epochs=1, seconds=0, gain_choosing=0, gain_confirming=0
        ).model_dump(mode="json")


class OneBatch:
    batch_size = 200

    def __len__(self) -> int:
        return 1


def doubtful_scores() -> dict[str, Scores]:
    """A gain of the learned alphas that one setting alone would prove, but the best of three does not."""
    random = np.random.default_rng(0)
    common, noise = random.normal(1, 1, 200), random.normal(0, 0.3, 200)
    original = scores_of(common)
    for shift in np.linspace(0, 0.2, 201):
        candidate = scores_of(common + noise + shift)
        found = gain_over(original, candidate, METRIC)
        if found.better:
            assert not widened(found, 2).better
            worse = scores_of(common - 0.01)
            return {
                ORIGINAL: original,
                "alpha 0.1": scores_of(common + 0.5 * (noise + shift)),
                "alpha per layer": candidate,
                "alpha per channel": worse,
            }
    raise AssertionError


@pytest.mark.parametrize("learn", [(), tuple(Learning)])
def test_a_sweep_corrects_for_the_choice_among_settings(learn: tuple[Learning, ...]) -> None:
    scores = doubtful_scores()
    if not learn:
        scores["alpha 0.1"] = scores["alpha per layer"]
    runner = Runner(scores)
    question = Question((0.1,), METRIC, Method.GRID, learn)
    found = Investigation(runner, question, OneBatch(), OneBatch()).run(  # type: ignore[arg-type]
        model="m", rewrites="", data="d", split="s"
    )
    best = found.setting(found.best)
    assert found.best == ("alpha per layer" if learn else "alpha 0.1")
    confirmed = best.gain(METRIC.name)
    assert confirmed is not None
    alone = gain_over(scores[ORIGINAL], scores["alpha per layer"], METRIC)
    assert alone.better
    assert confirmed == (widened(alone, 3) if learn else alone)
    assert confirmed.better == (not learn)
    assert found.kept == (ORIGINAL if learn else found.best)
