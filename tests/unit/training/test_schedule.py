"""The learning rate of each step, by the formulas of the papers; who gets which rate and decay."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from surgeon.models.origin import BaseWeights, LoadedModel
from surgeon.models.sources import load_model
from surgeon.surgery.apply import convert
from surgeon.training import network
from surgeon.training.recipe import SettledRecipe, check_recipe
from surgeon.training.schedule import Schedule, make_optimizer
from tests.helpers import SmallResNet

PLAIN = {
    "lr": 0.01,
    "epochs": 10,
    "batch_size": 20,
    "optimizer": "sgd",
    "head_lr": 1,
    "warmup_epochs": 0,
    "head_scale": 1,
    "freeze": [],
    "norm_weight_decay": True,
}


def settled(**keys: object) -> SettledRecipe:
    return SettledRecipe.model_validate(dict(check_recipe(PLAIN | keys, "x")))


def rates(steps: int, **keys: object) -> list[float]:
    recipe = settled(**{"lr": 0.4, **keys})
    optimizer = torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr_scale": 1.0}], lr=recipe.lr)
    schedule = Schedule(optimizer, recipe, steps)
    found = []
    for step in range(steps):
        schedule.set(step)
        found.append(optimizer.param_groups[0]["lr"])
    return found


def test_cycles_follow_the_formula_of_snapshot_ensembles() -> None:
    steps, cycles = 30, 3
    length = steps // cycles
    expected = [0.2 * (math.cos(math.pi * (step % length) / length) + 1) for step in range(steps)]
    assert rates(steps, epochs=6, snapshots=3) == pytest.approx(expected)


def test_every_cycle_warms_up() -> None:
    found = rates(40, epochs=8, snapshots=2, warmup_epochs=1)
    for start in (0, 20):
        rising = found[start : start + 5]
        assert rising == sorted(rising)
        assert 0 < rising[0] < 0.1
        assert found[start + 5] == pytest.approx(0.4)


def test_steps_divide_by_ten() -> None:
    found = rates(20, epochs=4, schedule="step", milestones=[0.5, 0.75])
    assert found == pytest.approx([0.4] * 10 + [0.04] * 5 + [0.004] * 5)
    assert rates(6, epochs=2, schedule="constant") == pytest.approx([0.4] * 6)


def test_a_single_step_has_the_highest_rate_and_no_remark(caplog: pytest.LogCaptureFixture) -> None:
    assert rates(1, epochs=1) == pytest.approx([0.4])
    assert not caplog.records


def test_the_rate_of_a_step_does_not_depend_on_where_training_began() -> None:
    recipe = settled(lr=0.4, epochs=4, warmup_epochs=1)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=recipe.lr)
    schedule = Schedule(optimizer, recipe, 40)
    schedule.set(17)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(rates(40, epochs=4, warmup_epochs=1)[17])


def settings(model: nn.Module, decay_norms: bool, **keys: object) -> dict[str, tuple[float, float]]:
    """Rate and decay of every parameter that learns, by name."""
    recipe = settled(**{"weight_decay": 0.1, "norm_weight_decay": decay_norms, **keys})
    network.choose_what_learns(model, recipe)
    optimizer = make_optimizer(network.parameter_groups(model, recipe), recipe)
    Schedule(optimizer, recipe, 10 * recipe.epochs).set(0)
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        names[parameter]: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


@pytest.mark.parametrize("name", ["sgd", "SGD", "sgdw", "nlars", "momentum", "adamw", "adamp", "nmuon"])
def test_without_momentum_a_step_is_plain(name: str) -> None:
    recipe = settled(optimizer=name, momentum=0, lr=0.1, weight_decay=0)
    parameter = nn.Parameter(torch.ones(2, 2))
    optimizer = make_optimizer([{"params": [parameter], "lr_scale": 1.0}], recipe)
    for _ in range(2):
        parameter.grad = torch.ones(2, 2)
        optimizer.step()
    assert (parameter < 1).all()
    if name.lower() in ("sgd", "sgdw", "momentum"):
        torch.testing.assert_close(parameter.detach(), torch.full((2, 2), 0.8))


@pytest.mark.parametrize("rewritten", [False, True])
def test_weight_decay_of_gamma_and_beta_is_a_switch(rewritten: bool) -> None:
    model = convert(SmallResNet(), "ghost") if rewritten else SmallResNet()
    for decay in (True, False):
        found = settings(model, decay)
        assert found["layer1.0.bn1.weight"][1] == found["layer1.0.bn1.bias"][1] == (0.1 if decay else 0)
        assert found["conv1.weight"][1] == found["fc.weight"][1] == 0.1
        assert found["fc.bias"][1] == 0


def test_the_head_and_each_layer_have_their_rate() -> None:
    model = load_model("resnet18", pretrained=False).model
    found = settings(model, True, lr=0.1, head_lr=5, layer_decay=0.5)
    assert found["fc.weight"][0] == pytest.approx(0.5)
    # The stem, eight blocks and the head are timm's layers of it.
    for name, power in {"layer4.1.conv1.weight": 1, "layer1.0.bn2.weight": 8, "conv1.weight": 9, "bn1.bias": 9}.items():
        assert found[name][0] == pytest.approx(0.1 * 0.5**power)


@pytest.mark.parametrize(
    ("name", "layers"),
    [("torchvision:densenet121", 32), ("torchvision:regnet_x_400mf", 19), ("digits-resnet8", 3), ("inception_v3", 14)],
)
def test_layers_are_neither_single_tensors_nor_the_whole_network(name: str, layers: int) -> None:
    model = load_model(name, pretrained=False).model
    found = network.layers_of(model)
    assert list(dict.fromkeys(found.values())) == list(range(layers))
    heads = {name for name, parameter in model.named_parameters() if parameter in network.head_parameters(model)}
    assert heads <= {name for name, layer in found.items() if layer == layers - 1}


@pytest.mark.parametrize("name", ["resnet18", "torchvision:resnet18"])
def test_what_surgery_adds_belongs_to_the_layer_it_was_added_to(name: str) -> None:
    model = load_model(name, pretrained=False).model
    before = network.layers_of(model)
    model = convert(model, "split", "selfnorm:site=layer1.1.conv1", "selfnorm:site=layer3.0")
    after = network.layers_of(model)
    assert {name: after[name] for name in before} == before
    assert after["bn1.aux.weight"] == before["bn1.weight"]
    assert after["layer2.0.bn1.aux.bias"] == before["layer2.0.bn1.weight"]
    units = {name: layer for name, layer in after.items() if name not in before and "aux" not in name}
    assert units
    for name, layer in units.items():
        assert layer == before["layer3.0.downsample.1.bias" if name.startswith("layer3") else "layer1.1.conv1.weight"]


def test_what_learns() -> None:
    assert settings(SmallResNet(), True, freeze=["backbone"]).keys() == {"fc.weight", "fc.bias"}
    without_norms = settings(SmallResNet(), True, freeze=["norm"])
    assert "conv1.weight" in without_norms
    assert not any("bn" in name for name in without_norms)
    assert all("bn" in name or "fc" in name for name in settings(SmallResNet(), True, only="norm"))


def for_four_classes(name: str) -> tuple[LoadedModel, set[str]]:
    """A network as if it had been trained for other classes, and the names of what was drawn anew for four."""
    trained = load_model(name, pretrained=False)
    weights = BaseWeights(origin="trained elsewhere")
    trained.origin = trained.origin.model_copy(update={"weights": weights})
    fitted = network.fit_to_classes(trained, 4, seed=1)
    before = dict(trained.model.named_parameters())
    drawn = {
        name
        for name, parameter in fitted.model.named_parameters()
        if parameter.shape != before[name].shape or not torch.equal(parameter, before[name])
    }
    return fitted, drawn


@pytest.mark.parametrize(
    ("name", "with_it"),
    [
        ("levit_128s", {"head.bn.weight", "head.bn.bias", "head_dist.bn.weight", "head_dist.bn.bias"}),
        ("efficientformer_l1", set()),
        ("efficientformerv2_s0", set()),
        ("repvit_m0_9", {f"head.{head}.bn.{part}" for head in ("head", "head_dist") for part in ("weight", "bias")}),
        ("swiftformer_xs", set()),
        ("deit_tiny_distilled_patch16_224", set()),
        ("pit_ti_distilled_224", set()),
        ("crossvit_9_240", set()),
        ("volo_d1_224", set()),
    ],
)
def test_both_heads_of_a_network_that_has_two_learn(name: str, with_it: set[str]) -> None:
    fitted, drawn = for_four_classes(name)
    model = fitted.model
    assert len(drawn) == 4
    found = settings(model, True, freeze=["backbone"], head_lr=2, lr=0.1)
    assert found.keys() == drawn | with_it
    assert {rate for rate, _ in found.values()} == {0.2}
    assert drawn <= settings(model, True, only="norm").keys()
    for frozen in (["backbone"], ["norm"]):
        network.train_mode(model, settled(freeze=frozen))
        assert all(module.training for head in network.head_of(model) for module in head.modules())
    learning = {name for name, module in model.named_modules() if module.training}
    assert {parameter.rpartition(".")[0] for parameter in drawn} <= learning


def test_only_a_new_head_is_made_smaller() -> None:
    trained = load_model("tf_efficientnet_lite0", pretrained=False)
    trained.origin = trained.origin.model_copy(update={"weights": BaseWeights(origin="trained elsewhere")})
    fitted = network.fit_to_classes(trained, 4, seed=1).model
    before = {name: parameter.clone() for name, parameter in fitted.named_parameters()}
    network.scale_new_head(trained.model, fitted, 0.01)
    for name, parameter in fitted.named_parameters():
        torch.testing.assert_close(parameter, before[name] * (0.01 if name.startswith("classifier.") else 1))
    network.scale_new_head(trained.model, trained.model, 0.01)
    assert torch.equal(trained.model.conv_stem.weight, fitted.conv_stem.weight)


@pytest.mark.parametrize("name", ["convnext_atto", "torchvision:mobilenet_v3_small", "torchvision:squeezenet1_1"])
def test_one_head_learns(name: str) -> None:
    fitted, drawn = for_four_classes(name)
    assert len(drawn) == 2
    assert settings(fitted.model, True, freeze=["backbone"]).keys() == drawn


def test_frozen_layers_keep_their_statistics() -> None:
    model = SmallResNet()
    network.train_mode(model, settled(freeze=["norm"]))
    assert model.training
    assert not model.bn1.training
    network.train_mode(model, settled(freeze=["backbone"]))
    assert model.fc.training
    assert not model.layer1.training
    assert not model.bn1.training
    network.train_mode(model, settled())
    assert model.bn1.training


@pytest.mark.parametrize(
    ("name", "residual"),
    [
        ("resnet18", True),
        ("cifar-resnet20", True),
        ("cifar-preact-resnet18", True),
        ("cifar-wideresnet40-2", True),
        ("tf_efficientnet_lite0", True),
        ("mobilenetv3_small_050", True),
        ("torchvision:mobilenet_v2", True),
        ("inception_v3", False),
        ("torchvision:googlenet", False),
        ("torchvision:densenet121", False),
        ("vgg11_bn", False),
        ("vit_tiny_patch16_224", False),  # residual, but without BatchNorm
    ],
)
def test_gamma_and_beta_of_residual_networks_decay_unless_told_otherwise(name: str, residual: bool) -> None:
    assert network.has_residual_path(load_model(name, pretrained=False)) is residual


def test_rewrites_and_units_leave_a_network_residual() -> None:
    loaded = load_model("cifar-resnet20", pretrained=False)
    network.apply_rewrites(loaded, check_recipe({"bn": "ghost", "insert": "crossnorm"}, "x"))
    assert network.has_residual_path(loaded)
