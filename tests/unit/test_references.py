"""Layers that are reached by other ways than as registered parts, and layers whose parameters are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune, spectral_norm

import surgeon
from surgeon.layers.surgical import SurgicalNorm

INPUTS = (torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0)),)


class ThroughContainers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(3)
        self.bn.running_mean.fill_(2)
        self.in_a_list = [self.bn]
        self.in_a_tuple = ("bn", self.bn)
        self.in_a_mapping = {"bn": [self.bn]}
        object.__setattr__(self, "beside", self.bn)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.in_a_list[0], self.in_a_tuple[1], self.in_a_mapping["bn"][0], self.beside):
            assert layer is self.bn
            x = layer(x)
        return x


class ThroughAClosure(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        bn = nn.BatchNorm2d(3)
        self.bn = bn
        self.call = lambda x: bn(x)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.call(x)
        return y


class Unregistered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(3)
        self.others = [nn.Sequential(nn.BatchNorm2d(3))]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.others[0](self.bn(x))
        return y


def test_a_layer_in_a_container_is_rewritten_there() -> None:
    original = ThroughContainers().eval()
    model = surgeon.convert(original, "example-weighted", alpha=0.5, inputs=INPUTS)
    assert isinstance(model.in_a_list[0], SurgicalNorm)
    assert not torch.allclose(model(*INPUTS), original(*INPUTS))
    assert original.in_a_list[0] is original.bn


def test_a_layer_that_is_called_past_its_rewrite_is_refused_by_name() -> None:
    with pytest.raises(surgeon.SurgeonError, match="calls the original of the rewritten layer 'bn'"):
        surgeon.convert(ThroughAClosure(), "ghost", inputs=INPUTS, inplace=True)


def test_a_layer_that_is_not_registered_is_named() -> None:
    with pytest.warns(UserWarning, match=r"does not register it as a part .*1 BatchNorm layer \(others\[0\]\.0\)"):
        model = surgeon.convert(Unregistered(), "ghost", inputs=INPUTS)
    assert type(model.others[0][0]) is nn.BatchNorm2d


def test_a_network_whose_only_layers_are_not_registered_is_not_said_to_have_none() -> None:
    model = nn.Sequential(nn.Conv2d(3, 3, 1))
    model[0].after = [nn.BatchNorm2d(3)]
    with pytest.raises(surgeon.SurgeonError, match=r"does not register .*1 BatchNorm layer \(0\.after\[0\]\)"):
        surgeon.convert(model, "ghost")


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("weight", lambda bn: prune.l1_unstructured(bn, "weight", 0.5)),
        ("bias", lambda bn: prune.random_unstructured(bn, "bias", 0.5)),
        ("weight", lambda bn: parametrize.register_parametrization(bn, "weight", Doubled())),
        ("weight", lambda bn: torch.nn.utils.parametrizations.weight_norm(bn, dim=None)),
        ("weight", lambda bn: spectral_norm(bn)),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_computed_parameter_is_refused_by_name(name: str, compute: Callable[[nn.Module], Any]) -> None:
    model = nn.Sequential(nn.BatchNorm2d(4))
    compute(model[0])
    with pytest.raises(surgeon.SurgeonError, match=f"The {name} of the layer '0' is computed from other tensors"):
        surgeon.convert(model, "ghost")


def test_a_layer_whose_pruning_was_made_permanent_is_rewritten() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4)).eval()
    prune.random_unstructured(model[0], "weight", 2)
    prune.remove(model[0], "weight")
    x = torch.randn(2, 4, 3, 3)
    assert torch.equal(surgeon.convert(model, "ghost")(x), model(x))
