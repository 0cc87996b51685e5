"""A temperature as a part of the network: stored, loaded, and never in the weights."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import pytest
import timm
import torch
from torch import nn

import surgeon
from surgeon.checkpoint import open_model
from surgeon.commands.verify import verify
from surgeon.core.errors import SurgeonError
from surgeon.surgery.temperature import set_temperature, temperature_of
from tests.cli.running import document
from tests.helpers import small_images, small_resnet


@pytest.fixture
def model() -> nn.Module:
    return small_resnet()


def logits(model: nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        return model(small_images())


def test_logits_are_divided(model: nn.Module) -> None:
    before = logits(model)
    assert temperature_of(model) is None
    set_temperature(model, 2.5)
    assert temperature_of(model) == 2.5
    assert torch.equal(logits(model), before / 2.5)


def test_a_second_temperature_replaces_the_first(model: nn.Module) -> None:
    before = logits(model)
    set_temperature(model, 2.5)
    set_temperature(model, 0.5)
    assert temperature_of(model) == 0.5
    assert torch.equal(logits(model), before / 0.5)


def test_none_takes_it_away_and_leaves_other_hooks(model: nn.Module) -> None:
    before = logits(model)
    handle = model.register_forward_hook(lambda *_: None)
    set_temperature(model, 2.5)
    set_temperature(model, None)
    assert temperature_of(model) is None
    assert torch.equal(logits(model), before)
    assert len(model._forward_hooks) == 1
    handle.remove()
    assert not model._forward_hooks


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_what_is_no_temperature_is_refused(model: nn.Module, temperature: float) -> None:
    set_temperature(model, 2.0)
    with pytest.raises(SurgeonError, match="temperature cannot be"):
        set_temperature(model, temperature)


def test_a_copy_has_a_temperature_of_its_own(model: nn.Module) -> None:
    set_temperature(model, 2.0)
    other = copy.deepcopy(model)
    assert temperature_of(other) == 2.0
    set_temperature(other, None)
    assert temperature_of(model) == 2.0


def test_the_weights_do_not_know_of_it(model: nn.Module) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    set_temperature(model, 2.0)
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_converting_keeps_it(model: nn.Module) -> None:
    set_temperature(model, 2.0)
    converted = surgeon.convert(model, "example-weighted")
    assert temperature_of(converted) == 2.0
    assert torch.allclose(logits(converted), logits(model), rtol=1e-5)


def test_an_output_that_is_no_tensor_is_told() -> None:
    class Pair(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, x

    model = Pair()
    set_temperature(model, 2.0)
    with pytest.raises(SurgeonError, match="gives a tuple"):
        model(torch.zeros(1))


# --- checkpoints


def digits() -> nn.Module:
    return surgeon.convert(open_model("digits-resnet8").model, "example-weighted:alpha=0.3")


def test_a_checkpoint_keeps_it(tmp_path: Path) -> None:
    model, images = digits(), torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    plain = surgeon.save(model, tmp_path / "plain")
    set_temperature(model, 1.75)
    folder = surgeon.save(model, tmp_path / "scaled")
    loaded = surgeon.load(folder)
    assert temperature_of(loaded) == 1.75
    assert temperature_of(surgeon.load(plain)) is None
    with torch.inference_mode():
        assert torch.equal(loaded(images), model.eval()(images))
        assert torch.equal(loaded(images), surgeon.load(plain)(images) / 1.75)
    assert json.loads((folder / "surgery.json").read_text("utf-8"))["temperature"] == 1.75
    again = surgeon.load(surgeon.save(loaded, tmp_path / "again"))
    assert temperature_of(again) == 1.75


def test_a_checkpoint_with_it_is_verified_and_told(tmp_path: Path) -> None:
    model = digits()
    set_temperature(model, 1.75)
    folder = surgeon.save(model, tmp_path / "scaled")
    assert verify(folder).passed
    assert "1.75" in (folder / "README.md").read_text("utf-8")


def test_a_network_of_ones_own_is_loaded_with_it(tmp_path: Path) -> None:
    model = surgeon.convert(small_resnet(), "example-weighted")
    set_temperature(model, 3.0)
    loaded = surgeon.load(surgeon.save(model, tmp_path / "own"), model=small_resnet())
    assert temperature_of(loaded) == 3.0
    assert torch.equal(logits(loaded), logits(model.eval()))


def test_a_timm_network_with_it_can_be_loaded_by_name_of_the_folder_alone(tmp_path: Path) -> None:
    model = surgeon.convert(timm.create_model("resnet10t", num_classes=5).eval(), "example-weighted")
    set_temperature(model, 3.0)
    assert temperature_of(surgeon.load(surgeon.save(model, tmp_path / "timm"))) == 3.0


# --- sweeping with it

SWEEP = ("sweep", "--data", "digits", "--split", "validation", "--alpha", "0,0.3", "--metric", "cross-entropy")


def test_sweeping_again_multiplies(tmp_path: Path) -> None:
    first = document(*SWEEP, "digits-resnet8", "--temperature", "-o", tmp_path / "first")
    tuned = surgeon.load(tmp_path / "first" / "checkpoint")
    stored = temperature_of(tuned)
    assert stored == first["temperature"]
    set_temperature(tuned, 2 * stored)
    surgeon.save(tuned, tmp_path / "flat")
    second = document(*SWEEP, tmp_path / "flat", "--temperature", "-o", tmp_path / "second")
    assert second["chosen"] == first["chosen"] == 0.3
    assert second["temperature"] == pytest.approx(0.5, rel=1e-4)
    again = temperature_of(surgeon.load(tmp_path / "second" / "checkpoint"))
    assert again == 2 * stored * second["temperature"] == pytest.approx(stored, rel=1e-4)


@pytest.mark.parametrize("asked", ["--temperature", "--apply"])
def test_sweeping_again_leaves_a_temperature_that_is_right(tmp_path: Path, asked: str) -> None:
    """A further one of nearly 1 gains nothing beyond noise."""
    document(*SWEEP, "digits-resnet8", "--temperature", "-o", tmp_path / "first")
    stored = temperature_of(surgeon.load(tmp_path / "first" / "checkpoint"))
    second = document(*SWEEP, tmp_path / "first" / "checkpoint", asked, "-o", tmp_path / "second")
    assert second["temperature"] == pytest.approx(1, rel=1e-4)
    assert temperature_of(surgeon.load(tmp_path / "second" / "checkpoint")) == stored
