"""A grid where it is cheap, a race where it is not; what the clock said holds when a sweep goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surgeon
from surgeon.commands.sweep.api import _Loader
from surgeon.commands.sweep.investigation import A_MINUTE, ESTIMATING, FEW_IMAGES, Investigation, Question
from surgeon.measuring.axes import AlphaAxis
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.journal import Journal
from surgeon.measuring.runner import Runner
from surgeon.metrics import metrics
from surgeon.report.curves import panels, spots, without_a_place
from surgeon.results import Method, Sweep

ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
MANY = 2 * FEW_IMAGES


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)).eval()
    return surgeon.convert(plain, "example-weighted")


def loader(images: int) -> DataLoader:
    torch.manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(images, 1, 4, 4), torch.randint(3, (images,))), batch_size=96)


def swept(
    model: nn.Module,
    images: int,
    seconds: float | None,
    monkeypatch: pytest.MonkeyPatch,
    method: Method | None = None,
    journal: Journal | None = None,
    alphas: tuple[float, ...] = ALPHAS,
) -> Sweep:
    monkeypatch.setattr(Runner, "seconds_of", lambda *_: seconds)
    runner = Runner(model, AlphaAxis(model), InferenceSettings.of(model), journal=journal)
    question = Question(alphas, metrics["accuracy"], method)
    return Investigation(runner, question, _Loader(loader(images)), None).run(
        model="small", rewrites="", data="noise", split="all"
    )


@pytest.mark.parametrize(
    ("images", "seconds", "expected"),
    [
        (FEW_IMAGES, 10 * A_MINUTE, Method.GRID),
        (MANY, A_MINUTE, Method.GRID),
        (MANY, 1.1 * A_MINUTE, Method.RACE),
        (MANY, None, Method.RACE),  # nothing to measure the time by
    ],
)
def test_a_grid_is_the_default_where_it_is_cheap(
    model: nn.Module, images: int, seconds: float | None, expected: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert swept(model, images, seconds, monkeypatch).method is expected


@pytest.mark.parametrize("method", Method)
def test_what_was_asked_for_is_done(model: nn.Module, method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    for images, seconds in ((FEW_IMAGES, 0.0), (MANY, 10 * A_MINUTE)):
        assert swept(model, images, seconds, monkeypatch, method).method is method


def test_two_values_are_no_race(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    assert swept(model, MANY, 10 * A_MINUTE, monkeypatch, alphas=(0.0, 0.1)).method is Method.GRID


def test_going_on_keeps_the_method(model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busier or idler than before must not turn a race into a grid."""

    def journal() -> Journal:
        return Journal(tmp_path / "journal.jsonl", {"sweep": 1}, overwrite=False)

    first = swept(model, MANY, 2 * A_MINUTE, monkeypatch, journal=journal())
    assert [record["found"] for record in journal().records() if record["phase"] == ESTIMATING] == [
        {"seconds": 2 * A_MINUTE}
    ]
    again = swept(model, MANY, 0.0, monkeypatch, journal=journal())
    assert first.method is again.method is Method.RACE
    assert first.points == again.points


def test_the_estimate_is_of_all_settings_on_all_images(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by one second for each pass through the network."""
    axis = AlphaAxis(model)
    passes = [0]

    def logits(images: torch.Tensor, values: list[float]) -> list[torch.Tensor]:
        passes[0] += len(values)
        return [torch.zeros(len(images), 3) for _ in values]

    monkeypatch.setattr(axis, "logits", logits)
    monkeypatch.setattr("surgeon.measuring.runner.time.perf_counter", lambda: float(passes[0]))
    runner = Runner(model, axis, InferenceSettings.of(model))
    settings = {str(alpha): alpha for alpha in ALPHAS}
    assert runner.seconds_of(settings, _Loader(loader(672))) == pytest.approx(7 * len(ALPHAS))


def test_no_curve_of_a_race_is_empty(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that were dropped early have their place in every panel, whatever was raced by."""
    found = swept(model, MANY, None, monkeypatch, Method.RACE)
    assert any(point.dropped for point in found.points)
    for names in panels(found):
        for name in names:
            assert [spot.value for spot in spots(found, name)] == list(ALPHAS), name
            assert not without_a_place(found, name)
