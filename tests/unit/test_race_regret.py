"""A race on few images loses next to nothing against a grid, by the simulation of `benchmarks/race_regret.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from surgeon.measuring import contest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "race_regret.py"
SAMPLES = 4


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("race_regret", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "race_regret", module)  # dataclasses look for their module
    spec.loader.exec_module(module)
    return module


def test_a_race_on_few_images_loses_next_to_nothing(simulation: ModuleType) -> None:
    lost = np.array([loss for loss, _ in simulation.losses(300, SAMPLES)])
    assert lost.mean() <= simulation.MOST_LOST / 2


def test_the_simulation_tells_a_race_that_thins_out_too_early(
    simulation: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "RACE", simulation.ROUNDS["rounds of shares alone"])
    lost = np.array([loss for loss, _ in simulation.losses(300, SAMPLES)])
    assert lost.mean() > simulation.MOST_LOST / 2
