"""How much each mode is used: right numbers, from the gates' own inputs, without a trace in the network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.layers.surgical import surgical_layers
from surgeon.surgery.apply import convert
from tests.helpers import SMALL_RESNET_NORMS, Snapshot, small_images, small_resnet


def decided(layer: nn.Module, sharpness: float = 50.0) -> None:
    """Two modes that are told apart by the first channel's mean alone: above 0, and below."""
    with torch.no_grad():
        layer.modes.gate.weight.zero_()
        layer.modes.gate.bias.zero_()
        layer.modes.gate.weight[:, 0] = torch.tensor([sharpness, -sharpness])


def with_first_means(*means: float) -> Tensor:
    x = torch.zeros(len(means), 4, 3, 3)
    x[:, 0] = torch.tensor(means)[:, None, None]
    return x


def test_images_are_counted_by_mode() -> None:
    layer = convert(nn.BatchNorm2d(4).eval(), "mode:modes=2")
    decided(layer)
    batches = [with_first_means(1, 2, -1), (with_first_means(3), torch.zeros(1))]
    usage = surgeon.gate_usage(layer, batches)[""]
    assert usage.shares == pytest.approx([0.75, 0.25])
    assert usage.largest == [0.75, 0.25]


def test_a_mean_share_is_not_how_often_a_mode_is_largest() -> None:
    layer = convert(nn.BatchNorm2d(4).eval(), "mode:modes=2")
    decided(layer, sharpness=0.01)
    usage = surgeon.gate_usage(layer, [with_first_means(1, 2, 1, -1)])[""]
    assert usage.shares == pytest.approx([0.5, 0.5], abs=0.02)
    assert usage.largest == [0.75, 0.25]


def test_channels_are_counted_by_mode() -> None:
    layer = convert(nn.BatchNorm2d(4).eval(), "mode-group:modes=2")
    decided(layer)
    x = torch.ones(3, 4, 2, 2)
    x[:, 3] = -1
    usage = surgeon.gate_usage(layer, [x])[""]
    assert usage.shares == pytest.approx([0.75, 0.25])
    assert usage.largest == [0.75, 0.25]


@pytest.mark.parametrize("rewrite", ["mode:modes=1", "mode:modes=3", "mode-group:modes=3"])
def test_every_layer_is_told_and_the_network_is_left_alone(rewrite: str) -> None:
    model = convert(small_resnet(), rewrite).train()
    before = Snapshot(model)
    usage = surgeon.gate_usage(model, [small_images(5)])
    before.assert_unchanged()
    assert not any(layer._forward_pre_hooks for layer in surgical_layers(model).values())
    assert list(usage) == SMALL_RESNET_NORMS
    for each in usage.values():
        assert sum(each.shares) == pytest.approx(1)
        assert sum(each.largest) == pytest.approx(1)


def test_fresh_gates_are_nearly_uniform() -> None:
    usage = surgeon.gate_usage(convert(small_resnet(), "mode:modes=2"), [small_images(20)])
    assert all(each.shares == pytest.approx([0.5, 0.5], abs=0.2) for each in usage.values())


def test_without_modes_or_images_it_is_refused() -> None:
    with pytest.raises(SurgeonError, match="no mode or mode-group layers"):
        surgeon.gate_usage(convert(small_resnet(), "ghost"), [small_images()])
    with pytest.raises(SurgeonError, match="No image"):
        surgeon.gate_usage(convert(small_resnet(), "mode"), [])
