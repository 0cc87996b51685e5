"""Intervals contain the truth as often as they say: every registered metric, few and many images.

The simulation is that of `benchmarks/interval_coverage.py`, which prints the table of the documentation.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from surgeon.measuring.comparison import gain_of_temperature
from surgeon.metrics import ImageScores, Metric, PairedComparison, Scores, group_of, metrics
from surgeon.metrics.interval import Interval, compare_images, figure_interval

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "interval_coverage.py"
NOMINAL = 0.93
SAMPLES = 30
OF_CLASSES = [name for name in metrics if not metrics[name].only_masks]


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("interval_coverage", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["interval_coverage"] = module  # dataclasses look for their module
    spec.loader.exec_module(module)
    return module


def least(samples: int) -> float:
    """What a share of 93% may come to by chance: it falls below once in a thousand simulations."""
    return NOMINAL - 3.1 * math.sqrt(NOMINAL * (1 - NOMINAL) / samples)


@pytest.mark.parametrize("size", [50, 200, 1000])
def test_every_interval_contains_the_truth(simulation: ModuleType, size: int) -> None:
    """Of each pair of networks and of all pairs together, but for chance."""
    assert not too_short(simulation, size)


def too_short(simulation: ModuleType, size: int) -> list[tuple[str, str, dict[str, float]]]:
    """By metric and kind of interval, the shares that are too small to be chance, by pair."""
    pairs, found = simulation.PAIRS, []
    rows = [each for pair in pairs for each in simulation.coverages(pair, (size,), SAMPLES, images=20_000)]
    for name in OF_CLASSES:
        for kind in ("figure", "difference"):
            shares = {each.pair: getattr(each, kind) for each in rows if each.metric == name}
            mean = sum(shares.values()) / len(shares)
            if min(shares.values()) < least(SAMPLES) or mean < least(SAMPLES * len(shares)):
                found.append((name, kind, shares))
    return found


def test_intervals_that_are_too_short_by_a_third_are_noticed(
    simulation: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every metric, at 50 or at 1,000 images: so the few samples of the test above are enough."""

    def shortened(figure: float, low: float, high: float) -> Interval:
        return Interval(figure - (figure - low) * 2 / 3, figure + (high - figure) * 2 / 3)

    def of_figure(metric: Metric, images: ImageScores) -> Interval:
        figure = metric.compute(images)
        assert figure is not None
        return shortened(figure, *figure_interval(metric, images))

    def of_difference(metric: Metric, candidate: ImageScores, baseline: ImageScores) -> PairedComparison:
        compared = compare_images(metric, candidate, baseline)
        low, high = shortened(compared.difference, compared.low, compared.high)
        return replace(compared, low=low, high=high)

    monkeypatch.setattr(simulation, "figure_interval", of_figure)
    monkeypatch.setattr(simulation, "compare_images", of_difference)
    assert {name for size in (50, 1000) for name, *_ in too_short(simulation, size)} == set(OF_CLASSES)


def by_the_normal_distribution(metric: Metric, candidate: ImageScores, baseline: ImageScores) -> tuple[float, float]:
    """The textbook interval of a mean difference."""
    assert metric.per_image is not None
    first, second = (metric.per_image(images).astype(np.float64) for images in (candidate, baseline))
    error = (first - second).std(ddof=1) / math.sqrt(len(first))
    return (first - second).mean() - 1.96 * error, (first - second).mean() + 1.96 * error


def by_leaving_out_groups(metric: Metric, candidate: ImageScores, baseline: ImageScores) -> tuple[float, float]:
    """The textbook interval of a difference of figures that are no means: the jackknife over groups of images."""

    def difference(first: ImageScores, second: ImageScores) -> float:
        figures = metric.compute(first), metric.compute(second)
        assert figures[0] is not None
        assert figures[1] is not None
        return figures[0] - figures[1]

    groups = np.unique(group_of(candidate.indices)).tolist()
    without = np.array([difference(candidate.without(group), baseline.without(group)) for group in groups])
    error, found = math.sqrt((len(groups) - 1) * without.var()), difference(candidate, baseline)
    return found - 1.96 * error, found + 1.96 * error


@pytest.mark.parametrize(
    ("name", "size", "pair", "interval"),
    [
        ("accuracy", 50, "90%, overconfident, alike", by_the_normal_distribution),
        ("rms", 200, "75%, overconfident, alike", by_leaving_out_groups),
        ("mad", 200, "99%, overconfident, alike", by_leaving_out_groups),
    ],
)
def test_the_simulation_tells_intervals_that_are_too_short(
    simulation: ModuleType,
    name: str,
    size: int,
    pair: str,
    interval: Callable[[Metric, ImageScores, ImageScores], tuple[float, float]],
) -> None:
    """Intervals that are right for many images, where there are few."""
    population = simulation.Population(next(each for each in simulation.PAIRS if each.name == pair), 20_000)
    candidate, baseline = (population.truth(metrics[name], network, size) for network in (0, 1))
    random, inside = np.random.default_rng(1), 0
    for _ in range(SAMPLES):
        places = random.integers(population.images, size=size)
        low, high = interval(metrics[name], population.take(0, places), population.take(1, places))
        inside += low <= candidate - baseline <= high
    assert inside / SAMPLES < least(SAMPLES)


@pytest.mark.parametrize(("sharpness", "real"), [(1.0, False), (3.0, True)])
def test_a_temperature_is_a_real_gain_only_for_a_network_that_needs_one(sharpness: float, real: bool) -> None:
    """Labels are drawn with the network's own probabilities, so that it is calibrated unless it is made too sure."""
    generator, found, samples = torch.Generator().manual_seed(0), 0, 40
    for _ in range(samples):
        logits = 2.5 * torch.randn(400, 10, generator=generator)
        labels = torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0]
        scores = Scores()
        scores.update(sharpness * logits, labels, range(400))
        gain = gain_of_temperature(scores)
        assert gain.low < gain.difference < gain.high
        found += gain.better
    if real:
        assert found == samples
    else:
        assert found <= 0.025 * samples + 3.1 * math.sqrt(0.025 * 0.975 * samples)


@pytest.mark.long
@pytest.mark.parametrize("size", [50, 200, 1000])
def test_every_interval_contains_the_truth_in_many_samples(simulation: ModuleType, size: int) -> None:
    samples = 2000
    for pair in simulation.PAIRS:
        for each in simulation.coverages(pair, (size,), samples):
            assert min(each.figure, each.difference) >= least(samples), each
