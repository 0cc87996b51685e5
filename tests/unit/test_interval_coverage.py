"""Intervals contain the truth as often as they say: every registered metric, few and many images.

The simulation is that of `benchmarks/interval_coverage.py`, which prints the table of the documentation.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

from surgeon.metrics import metrics

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "interval_coverage.py"
NOMINAL = 0.93


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
    """Of each pair of networks but for chance, and of all pairs together."""
    samples, pairs = 120, simulation.PAIRS
    found = [each for pair in pairs for each in simulation.coverages(pair, (size,), samples, images=20_000)]
    for name in metrics:
        rows = [each for each in found if each.metric == name]
        for kind in ("figure", "difference"):
            shares = {each.pair: getattr(each, kind) for each in rows}
            assert min(shares.values()) >= least(samples), (name, kind, shares)
            assert sum(shares.values()) / len(shares) >= NOMINAL, (name, kind, shares)


@pytest.mark.long
@pytest.mark.parametrize("size", [50, 200, 1000])
def test_every_interval_contains_the_truth_in_many_samples(simulation: ModuleType, size: int) -> None:
    samples = 2000
    for pair in simulation.PAIRS:
        for each in simulation.coverages(pair, (size,), samples):
            assert min(each.figure, each.difference) >= least(samples), each
