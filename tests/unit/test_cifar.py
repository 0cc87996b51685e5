"""The networks of our own: sizes as published, names as published, and a catalogue that needs no torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from surgeon.models.catalog import CATALOG
from surgeon.models.cifar import BasicBlock, PreActBlock, zero_padded_shortcut
from surgeon.models.fitting import load_into
from surgeon.models.weights import read_weights

WEIGHTS = Path(__file__).parents[2].parent / "shared" / "data" / "weights"
NAMES = sorted(CATALOG)

# From the papers' tables (in millions) and, to the last digit, from the published PyTorch versions.
PARAMETERS = {
    "cifar-resnet8": 75_290,
    "cifar-resnet14": 172_506,
    "cifar-resnet20": 269_722,
    "cifar-resnet32": 464_154,
    "cifar-resnet44": 658_586,
    "cifar-resnet56": 853_018,
    "cifar-resnet110": 1_727_962,
    "cifar-wideresnet28-2": 1_467_610,
    "cifar-wideresnet28-10": 36_479_194,
    "cifar-wideresnet40-2": 2_243_546,
    "cifar-preact-resnet18": 11_172_170,
    "digits-resnet8": 75_002,
}


def built(name: str, num_classes: int | None = None, in_chans: int | None = None) -> nn.Module:
    return CATALOG[name].build(num_classes, in_chans)


@pytest.mark.parametrize("name", NAMES)
def test_has_the_published_number_of_parameters(name: str) -> None:
    assert sum(parameter.numel() for parameter in built(name).parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", NAMES)
def test_takes_its_input_and_returns_one_logit_per_class(name: str) -> None:
    with torch.inference_mode():
        logits = built(name).eval()(torch.zeros(2, *CATALOG[name].input_size))
    assert logits.shape == (2, CATALOG[name].num_classes)


@pytest.mark.parametrize("name", ["cifar-resnet20", "cifar-wideresnet28-2", "digits-resnet8"])
def test_takes_other_classes_and_channels(name: str) -> None:
    with torch.inference_mode():
        logits = built(name, num_classes=7, in_chans=2).eval()(torch.zeros(1, 2, 16, 16))
    assert logits.shape == (1, 7)


@pytest.mark.parametrize("name", NAMES)
def test_has_plain_batchnorm_layers_only(name: str) -> None:
    norms = [module for module in built(name).modules() if "Norm" in type(module).__name__]
    assert norms
    assert {type(norm) for norm in norms} == {nn.BatchNorm2d}


@pytest.mark.parametrize("name", ["cifar-resnet20", "cifar-wideresnet28-2", "digits-resnet8"])
def test_every_parameter_is_trained(name: str) -> None:
    network = built(name)
    network(torch.randn(4, *CATALOG[name].input_size)).square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())


def test_option_a_shortcut_keeps_values_and_pads_zeros_on_both_sides() -> None:
    x = torch.randn(2, 16, 5, 5)
    out = zero_padded_shortcut(x, 32, stride=2)
    assert out.shape == (2, 32, 3, 3)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


def test_option_a_shortcut_is_the_identity_where_the_shape_stays() -> None:
    x = torch.randn(2, 16, 4, 4)
    assert torch.equal(zero_padded_shortcut(x, 16, stride=1), x)


def test_a_block_whose_branch_is_zero_passes_its_shortcut_on() -> None:
    x = torch.randn(2, 4, 6, 6)
    basic, preact = BasicBlock(4, 4, 1).eval(), PreActBlock(4, 4, 1).eval()
    nn.init.zeros_(basic.conv2.weight)
    nn.init.zeros_(preact.conv2.weight)
    assert torch.equal(basic(x), x.relu())
    assert torch.equal(preact(x), x)


def test_a_preactivation_block_projects_its_activated_input() -> None:
    x = torch.randn(2, 4, 6, 6)
    block = PreActBlock(4, 8, 2).eval()
    nn.init.zeros_(block.conv2.weight)
    assert block.shortcut is not None
    assert torch.equal(block(x), block.shortcut(block.bn1(x).relu()))


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_entries_are_complete(name: str) -> None:
    entry = CATALOG[name]
    assert len(entry.mean) == len(entry.std) == entry.input_size[0]
    assert entry.summary


def test_catalogue_is_read_without_torch() -> None:
    script = "import sys, surgeon.models.catalog; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2]).returncode == 0


@pytest.mark.skipif(not WEIGHTS.is_dir(), reason=f"the published weights are not in {WEIGHTS}")
@pytest.mark.parametrize(
    ("name", "file"),
    [("cifar-resnet20", "resnet20-12fca82f.th"), ("cifar-resnet56", "resnet56-4bfd9763.th")],
)
def test_published_weights_fit(name: str, file: str) -> None:
    network = built(name)
    weights = read_weights(WEIGHTS / file)
    load_into(network, weights)
    assert "took 'state_dict'" in weights.notes
    assert torch.equal(network.state_dict()["linear.bias"], weights.state["linear.bias"])


@pytest.mark.parametrize("block", [BasicBlock, PreActBlock])
def test_activations_in_place_spare_the_shortcut(block: Callable[[int, int, int], nn.Module]) -> None:
    """Also in a block whose norms a tool has taken out: its input is passed on as it was."""
    network = block(4, 4, 1).eval()
    network.bn1, network.bn2 = nn.Identity(), nn.Identity()
    x = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    given = x.clone()
    with torch.no_grad():
        y = network(x)
        if block is BasicBlock:
            expected = (given + network.conv2(network.conv1(given).relu())).relu()
        else:
            expected = given + network.conv2(network.conv1(given.relu()).relu())
    assert torch.equal(x, given)
    torch.testing.assert_close(y, expected)
