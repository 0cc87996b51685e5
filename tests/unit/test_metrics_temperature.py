"""The streamed temperature against a direct fit in float64."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from surgeon.core.errors import SurgeonError
from surgeon.metrics import Scores, TemperatureFit, fit_temperature
from tests.helpers import randn


def overconfident(images: int, classes: int, sharpness: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits that are right for labels drawn from them, then made too sharp (or, below 1, too flat)."""
    logits = randn(images, classes, seed=seed, dtype=torch.float64) * 3
    generator = torch.Generator().manual_seed(seed + 1)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return (logits * sharpness).float(), labels


def random_logits(images: int, classes: int, scale: float) -> tuple[Tensor, Tensor]:
    labels = torch.randint(classes, (images,), generator=torch.Generator().manual_seed(3))
    return randn(images, classes) * scale + 2 * torch.nn.functional.one_hot(labels, classes), labels


CASES = {
    "overconfident-10": overconfident(3000, 10, 2.5),
    "overconfident-100": overconfident(1000, 100, 4.0),
    "overconfident-1000": overconfident(300, 1000, 1.7),
    "far-overconfident": overconfident(500, 10, 9.0),
    "right": overconfident(1000, 10, 1.0),
    "too-flat": overconfident(1000, 10, 0.4),
    "random": random_logits(500, 7, 1.0),
    "random-large": random_logits(500, 50, 8.0),
    "two-classes": overconfident(400, 2, 3.0),
    "few-images": overconfident(12, 10, 2.0),
}


def direct_fit(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    def cross_entropy(log_temperature: float) -> float:
        scaled = logits.double() / math.exp(log_temperature)
        return float(torch.nn.functional.cross_entropy(scaled, labels))

    found = minimize_scalar(
        cross_entropy, bounds=(math.log(0.2), math.log(10)), method="bounded", options={"xatol": 1e-10}
    )
    return math.exp(found.x), float(found.fun)


def streamed(logits: Tensor, labels: Tensor) -> Scores:
    scores = Scores()
    for places in torch.arange(len(labels)).split(97):
        scores.update(logits[places], labels[places], places)
    return scores


@pytest.mark.parametrize("case", CASES)
def test_the_streamed_fit_is_the_direct_one(case: str) -> None:
    logits, labels = CASES[case]
    temperature, cross_entropy = direct_fit(logits, labels)
    for fit in (streamed(logits, labels).images().scaled, fit_temperature(logits, labels)):
        assert fit.temperature == pytest.approx(temperature, abs=1e-3)
        assert fit.cross_entropy == pytest.approx(cross_entropy, abs=1e-5)


@pytest.mark.parametrize("case", ["overconfident-10", "random-large"])
def test_fitted_on_some_images_and_reported_on_others(case: str) -> None:
    logits, labels = CASES[case]
    choosing = torch.arange(len(labels)) % 3 == 0
    temperature, own = direct_fit(logits[choosing], labels[choosing])
    other = torch.nn.functional.cross_entropy(logits[~choosing].double() / temperature, labels[~choosing])
    chosen = streamed(logits[choosing], labels[choosing])
    confirmed = streamed(logits[~choosing], labels[~choosing]).images(fitted_on=chosen).scaled
    assert chosen.images().scaled.temperature == confirmed.temperature == pytest.approx(temperature, abs=1e-3)
    assert chosen.images().scaled.cross_entropy == pytest.approx(own, abs=1e-5)
    assert confirmed.cross_entropy == pytest.approx(float(other), abs=1e-5)


def test_a_temperature_fitted_where_there_is_none() -> None:
    logits, labels = CASES["few-images"]
    unfitted = streamed(torch.full((3, 10), math.nan), torch.tensor([0, 1, 2]))
    assert streamed(logits, labels).images(fitted_on=unfitted).scaled == TemperatureFit(None, math.inf)
    with pytest.raises(SurgeonError, match="no images"):
        streamed(logits, labels).images(fitted_on=Scores())


@pytest.mark.parametrize(("label", "bound"), [(0, 0.2), (1, 10.0)], ids=["right", "wrong"])
def test_a_fit_without_a_minimum_ends_at_a_bound(label: int, bound: float) -> None:
    logits, labels = torch.tensor([[2.0, 0.0]]), torch.tensor([label])
    for fit in (streamed(logits, labels).images().scaled, fit_temperature(logits, labels)):
        assert fit.temperature == pytest.approx(bound)


def test_a_perfect_and_certain_network() -> None:
    fit = streamed(torch.tensor([[90.0, 0.0]] * 5), torch.tensor([0] * 5)).images().scaled
    assert fit.temperature is not None
    assert fit.cross_entropy == pytest.approx(0, abs=1e-9)


def test_huge_logits_do_not_overflow() -> None:
    logits, labels = torch.tensor([[1e30, 0.0]] * 300), torch.tensor([1] * 300)
    assert streamed(logits, labels).images().scaled.temperature is not None


def test_an_infinite_cross_entropy_has_no_temperature() -> None:
    logits, labels = torch.tensor([[0.0, -math.inf], [1.0, 0.0]]), torch.tensor([1, 0])
    for fit in (streamed(logits, labels).images().scaled, fit_temperature(logits, labels)):
        assert fit.temperature is None
        assert fit.cross_entropy == math.inf


def test_impossible_classes_are_harmless() -> None:
    logits, labels = CASES["overconfident-10"]
    masked = torch.cat([logits, torch.full((len(logits), 1), -math.inf)], dim=1)
    assert streamed(masked, labels).images().scaled == streamed(logits, labels).images().scaled


def test_no_images() -> None:
    with pytest.raises(SurgeonError, match="no images"):
        fit_temperature(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
