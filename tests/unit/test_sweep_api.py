"""`surgeon.sweep` on anybody's network and DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.layers.surgical import surgical_layers
from surgeon.results import Learning, Method, Sweep
from tests.helpers import Snapshot

CLASSES = 4


class Small(nn.Module):
    """Two convolutions with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(torch.relu(self.bn2(self.conv2(x))).mean((2, 3)))


def pictures(count: int, seed: int, brightness: float = 0.0) -> tuple[Tensor, Tensor]:
    """Stripes of four directions in noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    rows, columns = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
    stripes = torch.stack([t % 4 < 2 for t in (rows, columns, rows + columns, rows - columns)]).float() - 0.5
    images = stripes[labels] + 0.6 * torch.randn(count, 8, 8, generator=generator)
    return images.unsqueeze(1) + brightness, labels


def loader(count: int = 96, seed: int = 1, brightness: float = 1.0, batch: int = 32) -> DataLoader:
    return DataLoader(TensorDataset(*pictures(count, seed, brightness)), batch_size=batch)


@cache
def _trained() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Small()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        images, labels = pictures(256, seed=0)
        for _ in range(30):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimiser.step()
        optimiser.zero_grad()
    return model.eval()


@pytest.fixture
def model() -> nn.Module:
    """Trained on darker pictures than it is swept on: each picture's own statistics help."""
    copy = Small()
    copy.load_state_dict(_trained().state_dict())
    return copy.eval()


def alphas_of(model: nn.Module) -> set[Any]:
    return {layer.constant_alpha for layer in surgical_layers(model).values()}


def test_the_best_alpha_is_found_and_typed(model: nn.Module) -> None:
    result = surgeon.sweep(model, loader(), alphas=[0, 0.2, 0.5, 0.9], metric="cross-entropy")
    assert isinstance(result, Sweep)
    assert Sweep.model_validate_json(result.model_dump_json()) == result
    assert [point.value for point in result.points] == [0, 0.2, 0.5, 0.9]
    assert result.chosen == min(result.points, key=lambda point: point.metrics.cross_entropy).value > 0
    assert result.best == f"alpha {result.chosen:g}"
    assert (result.model, result.data, result.method) == ("Small", "DataLoader", Method.GRID)
    assert result.choosing_images == 96
    assert result.confirming_images == 0
    assert result.image_forwards == 4 * 96
    gain = result.setting(result.best).gain("cross-entropy")
    assert gain is not None
    assert gain.better
    assert gain.images == 96
    assert result.summary


def test_the_network_is_left_as_it_was(model: nn.Module) -> None:
    model.train()
    model.bn1.eval()
    before = Snapshot(model)
    surgeon.sweep(model, loader(32), alphas=[0, 0.5])
    before.assert_unchanged()
    assert not surgical_layers(model)


def test_the_figures_are_those_of_evaluate(model: nn.Module) -> None:
    result = surgeon.sweep(model, loader(), alphas=[0, 0.5])
    assert result.points[0].metrics == surgeon.evaluate(model, loader())
    at_half = surgeon.convert(model, "example-weighted", alpha=0.5)
    assert result.points[1].metrics == surgeon.evaluate(at_half, loader())
    assert result.points[0].gain is None


def test_the_original_is_measured_also_if_it_was_not_asked_for(model: nn.Module) -> None:
    result = surgeon.sweep(model, loader(32), alphas=[0.5])
    assert [point.value for point in result.points] == [0, 0.5]
    assert result.original == 0
    assert result.settings[0].name == "original"


def test_a_converted_network_is_left_at_the_best_setting(model: nn.Module) -> None:
    converted = surgeon.convert(model, "example-weighted", alpha=0.9)
    result = surgeon.sweep(converted, loader(), alphas=[0, 0.3, 0.5], metric="cross-entropy")
    assert alphas_of(converted) == {result.chosen}
    assert surgeon.evaluate(converted, loader()) == result.setting(result.best).choosing
    assert all(not layer.alpha.is_inference() for layer in surgical_layers(converted).values())


def test_other_images_confirm(model: nn.Module) -> None:
    held_back = loader(64, seed=2)
    result = surgeon.sweep(model, loader(), alphas=[0, 0.5], metric="cross-entropy", confirm_on=held_back)
    assert (result.choosing_images, result.confirming_images) == (96, 64)
    original, chosen = result.settings
    assert original.confirming is not None
    plain = surgeon.evaluate(model, held_back)
    fitted_elsewhere = {"temperature", "scaled_cross_entropy"}
    assert original.confirming.model_dump(exclude=fitted_elsewhere) == plain.model_dump(exclude=fitted_elsewhere)
    assert original.confirming.temperature == original.choosing.temperature
    assert original.confirming.scaled_cross_entropy >= plain.scaled_cross_entropy
    assert chosen.gain("cross-entropy").images == 64
    assert chosen.reported is chosen.confirming


def test_a_choice_that_other_images_refute_is_not_the_best(model: nn.Module) -> None:
    darker = loader(128, seed=2, brightness=0.0)
    converted = surgeon.convert(model, "example-weighted")
    result = surgeon.sweep(converted, loader(), alphas=[0, 0.3], metric="cross-entropy", confirm_on=darker)
    assert result.chosen == 0.3
    assert "keep the original" in result.summary[0]
    assert result.best == "original"
    assert alphas_of(converted) == {0}


class Breaks(list):
    """Batches of which the second cannot be had."""

    def __iter__(self) -> Iterator[Any]:
        yield self[0]
        raise OSError("unplugged")


def test_a_converted_network_is_as_before_after_an_error(model: nn.Module) -> None:
    converted = surgeon.convert(model, "example-weighted", alpha=0.25)
    with pytest.raises(OSError, match="unplugged"):
        surgeon.sweep(converted, Breaks(loader()), alphas=[0, 0.5])
    assert alphas_of(converted) == {0.25}
    assert all(not layer.alpha.is_inference() for layer in surgical_layers(converted).values())


def test_a_race_chooses_within_the_noise_of_a_grid(model: nn.Module) -> None:
    images = loader(1600, batch=16)
    values = [number / 10 for number in range(10)]
    grid, race = (
        surgeon.sweep(model, images, alphas=values, metric="cross-entropy", method=method)
        for method in ("grid", "race")
    )
    assert race.method is Method.RACE
    assert race.image_forwards < 0.6 * grid.image_forwards
    figures = {point.value: point.metrics.cross_entropy for point in grid.points}
    assert figures[race.chosen] <= figures[grid.chosen] + 0.05
    assert race.points[0].metrics == grid.points[0].metrics
    assert any(point.dropped for point in race.points)
    for point in race.points:
        assert (point.metrics.images < 1600) == (point.dropped is not None)


# --- learning


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("kind", Learning)
def test_learned_alphas_fit_no_worse_and_change_nothing_else(model: nn.Module, kind: Learning) -> None:
    converted = surgeon.convert(model, "example-weighted")
    converted.conv2.weight.requires_grad_(False)
    converted.train()
    weights, flags = state(converted), [p.requires_grad for p in converted.parameters()]
    result = surgeon.sweep(
        converted,
        loader(128),
        alphas=[0, 0.2, 0.5],
        metric="cross-entropy",
        learn=[kind.value],
        confirm_on=loader(96, seed=2),
    )
    (learned,) = result.learned
    assert learned.kind is kind
    assert set(learned.alphas) == {"bn1", "bn2"}
    assert learned.numbers == (2 if kind is Learning.PER_LAYER else 6 + 8)
    numbers = [n for alpha in learned.alphas.values() for n in (alpha if isinstance(alpha, Sequence) else [alpha])]
    assert len(numbers) == learned.numbers
    assert all(0 <= number <= 1 for number in numbers)
    single, fitted = result.settings[1], result.settings[2]
    assert fitted.name == f"alpha {kind.value.replace('-', ' ')}"
    assert fitted.choosing.cross_entropy < single.choosing.cross_entropy - 0.1  # bn1 wants more of it than bn2
    assert learned.gain_choosing == pytest.approx(
        fitted.choosing.cross_entropy - result.settings[0].choosing.cross_entropy
    )
    assert learned.gain_confirming == fitted.gain("cross-entropy").difference
    assert result.best in {single.name, fitted.name}
    after = converted.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in weights.items())
    assert [p.requires_grad for p in converted.parameters()] == flags
    assert all(p.grad is None for p in converted.parameters())
    assert all(module.training for module in converted.modules())
    assert surgeon.evaluate(converted, loader(128)) == result.setting(result.best).choosing


def test_learning_without_images_to_confirm_on_is_refused(model: nn.Module) -> None:
    with pytest.raises(SurgeonError, match="confirm_on"):
        surgeon.sweep(model, loader(32), alphas=[0], learn=["per-layer"])


def test_learning_stops_at_logits_that_are_not_numbers(model: nn.Module) -> None:
    with torch.no_grad():
        model.fc.bias[0] = torch.nan
    flags = [p.requires_grad for p in model.parameters()]
    with pytest.raises(SurgeonError, match="NaN logits"):
        surgeon.sweep(model, loader(32), alphas=[0], learn=["per-layer"], confirm_on=loader(32))
    assert [p.requires_grad for p in model.parameters()] == flags


# --- logits that are not numbers


class BreaksAt(nn.Module):
    """Gives NaN for one image while alpha is above a half."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        if self.model.bn1.constant_alpha > 0.5:
            logits[0] = torch.nan
        return logits


@pytest.mark.parametrize("method", Method)
def test_a_value_with_nan_logits_is_marked_and_loses(model: nn.Module, method: Method) -> None:
    broken = BreaksAt(surgeon.convert(model, "example-weighted"))
    broken.surgery = broken.model.surgery.model_copy(
        update={
            "operations": tuple(
                o.model_copy(update={"layer": f"model.{o.layer}"}) for o in broken.model.surgery.operations
            )
        }
    )
    result = surgeon.sweep(broken, loader(), alphas=[0, 0.3, 0.9], metric="cross-entropy", method=method)
    assert result.points[2].metrics.nan_images > 0
    assert result.chosen == 0.3
    assert Sweep.model_validate_json(result.model_dump_json()) == result


def test_nan_logits_everywhere_leave_the_original(model: nn.Module) -> None:
    with torch.no_grad():
        model.fc.bias[0] = torch.nan
    result = surgeon.sweep(model, loader(32), alphas=[0, 0.3])
    assert (result.chosen, result.best, result.temperature) == (0, "original", None)
    assert "keep it as it is" in result.summary[0]


# --- refusals


def test_what_can_be_gone_through_only_once_is_refused(model: nn.Module) -> None:
    with pytest.raises(SurgeonError, match="A generator can be iterated only once"):
        surgeon.sweep(model, (batch for batch in loader(32)), alphas=[0])
    with pytest.raises(SurgeonError, match="A generator can be iterated only once"):
        surgeon.sweep(model, loader(32), alphas=[0], confirm_on=(batch for batch in loader(32)))


class Stream(IterableDataset):
    """The images of a loader, of which nobody knows how many there are."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(*pictures(96, 1, 1.0), strict=True)


@pytest.mark.parametrize("method", ["grid", "race"])
def test_a_loader_of_a_stream_and_dictionaries_give_the_same(model: nn.Module, method: str) -> None:
    """Also with the alphas as the command takes them."""
    known = surgeon.sweep(model, loader(), alphas=[0, 0.1, 0.2], method=method).points
    stream = DataLoader(Stream(), batch_size=32)
    named = [{"pixel_values": images, "labels": labels} for images, labels in loader()]
    for given in (stream, named):
        assert surgeon.sweep(model, given, alphas="0:0.2:3", method=method).points == known


def test_alphas_that_are_none(model: nn.Module) -> None:
    with pytest.raises(SurgeonError, match="alphas cannot be 'much'"):
        surgeon.sweep(model, loader(), alphas="much")


def test_no_images_are_refused(model: nn.Module) -> None:
    with pytest.raises(SurgeonError, match="no images"):
        surgeon.sweep(model, [], alphas=[0])


def test_a_network_without_batchnorm_is_refused() -> None:
    with pytest.raises(SurgeonError):
        surgeon.sweep(nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES)), loader(32), alphas=[0])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"alphas": [0, 1.5]}, "alphas cannot be 1.5"),
        ({"alphas": []}, "alphas names 0 values"),
        ({"metric": "acuracy"}, "accuracy"),
    ],
)
def test_wrong_options_are_refused(model: nn.Module, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(SurgeonError, match=expected):
        surgeon.sweep(model, loader(32), **({"alphas": [0]} | options))


@pytest.mark.parametrize("options", [{"method": "rase"}, {"learn": ["per-leyer"]}])
def test_wrong_words_are_refused_as_any_other_option(model: nn.Module, options: dict[str, Any]) -> None:
    with pytest.raises(SurgeonError, match="cannot be"):
        surgeon.sweep(model, loader(32), alphas=[0], confirm_on=loader(32), **options)


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel], ids=["compiled", "parallel"])
def test_a_wrapped_network_is_swept_and_saved_as_what_it_wraps(wrap: Any, model: nn.Module, tmp_path: Path) -> None:
    converted = surgeon.convert(model, "example-weighted:alpha=0.9")
    wrapped = wrap(converted)
    alpha = surgeon.sweep(wrapped, loader(), alphas=[0, 0.2]).chosen
    folder = surgeon.save(wrapped, tmp_path / "saved")
    again = surgeon.load(folder, model=Small())
    layers = surgical_layers(again)
    assert layers.keys() == {"bn1", "bn2"}
    assert {layer.rewrites["example-weighted"].alpha for layer in layers.values()} == {alpha}
    with pytest.raises(SurgeonError, match="Convert the network first"):
        surgeon.convert(wrap(model), "ghost")


def test_batches_and_answers_of_other_kinds_are_told(model: nn.Module) -> None:
    images, labels = pictures(8, 1)
    with pytest.raises(SurgeonError, match=r"this one is a dictionary of x and label"):
        surgeon.sweep(model, [{"x": images, "label": labels}], alphas=[0])
    with pytest.raises(SurgeonError, match=r"this one is a Tensor"):
        surgeon.evaluate(model, [images])
    answers = nn.Sequential(model)
    answers.forward = lambda x: (x, "no logits")
    with pytest.raises(SurgeonError, match="returns a tuple"):
        surgeon.evaluate(answers, [(images, labels)])
