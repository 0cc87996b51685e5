"""Rewriting networks: what is replaced, what stays, and what the network knows about it afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.layers import BatchNormAct2d, FrozenBatchNormAct2d, GroupNormAct
from timm.models.levit import LinearNorm
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from surgeon.core.errors import SurgeonError
from surgeon.layers.surgical import SurgicalNorm, surgical_layers
from surgeon.surgery.apply import apply_plan, convert, install_everywhere
from surgeon.surgery.collect import collect_statistics
from surgeon.surgery.inspect import inspect_model
from surgeon.surgery.parity import relative_difference
from surgeon.surgery.plan import ResolvedPlan
from tests.helpers import (
    SMALL_RESNET_NORMS,
    Snapshot,
    randn,
    randomise,
    small_images,
    small_resnet,
)
from tests.reference.norms import example_weighted_reference


def names_and_options(model: nn.Module) -> dict[str, dict[str, dict[str, object]]]:
    return {o.layer: {r.name: r.options for r in o.rewrites} for o in model.surgery.operations}


# ---- what is replaced ----


def test_the_given_network_stays_as_it_is() -> None:
    model = small_resnet()
    snapshot = Snapshot(model)
    converted = convert(model, "ghost:size=2", "example-weighted:alpha=0.3")
    assert list(surgical_layers(converted)) == SMALL_RESNET_NORMS
    converted.train()(small_images()).sum().backward()
    snapshot.assert_unchanged()
    assert not hasattr(model, "surgery")
    assert all(parameter.grad is None for parameter in model.parameters())


def test_inplace_keeps_the_network_its_parameters_and_an_optimiser_that_holds_them() -> None:
    model = small_resnet()
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    converted = convert(model, "ghost", inplace=True)
    assert converted is model
    assert dict(converted.named_parameters()).keys() == parameters.keys()
    assert all(parameter is parameters[name] for name, parameter in converted.named_parameters())
    assert all(converted.get_buffer(name) is buffer for name, buffer in buffers.items())


@pytest.mark.parametrize("inplace", [False, True])
def test_a_bare_layer_is_a_network_too(inplace: bool) -> None:
    layer = randomise(nn.BatchNorm2d(8)).eval()
    converted = convert(layer, "example-weighted:alpha=0.3", inplace=inplace)
    assert isinstance(converted, SurgicalNorm)
    assert type(layer) is nn.BatchNorm2d
    assert names_and_options(converted) == {"": {"example-weighted": {"alpha": 0.3}}}
    again = convert(converted, "example-weighted:alpha=0.5", inplace=inplace)
    x = randn(2, 8, 3, 3)
    torch.testing.assert_close(again(x).double(), example_weighted_reference(x, layer, 0.5), rtol=1e-5, atol=1e-5)


def test_a_layer_in_a_container_is_replaced_in_it() -> None:
    model = nn.Sequential(nn.BatchNorm2d(8))
    converted = convert(model, "ghost")
    assert type(converted) is nn.Sequential
    assert isinstance(converted[0], SurgicalNorm)
    assert type(model[0]) is nn.BatchNorm2d


@pytest.mark.parametrize("inplace", [False, True])
def test_a_shared_layer_is_replaced_in_every_place(inplace: bool) -> None:
    shared = randomise(nn.BatchNorm2d(4))
    model = nn.ModuleDict({"first": nn.Sequential(shared, nn.ReLU()), "second": nn.Sequential(shared), "third": shared})
    converted = convert(model, "ghost", inplace=inplace)
    norm = converted["first"][0]
    assert isinstance(norm, SurgicalNorm)
    assert converted["second"][0] is norm
    assert converted["third"] is norm
    assert len(converted.surgery) == 1


def test_only_the_chosen_layers_are_replaced() -> None:
    converted = convert(small_resnet(), "ghost", layers="layer2.*")
    assert list(surgical_layers(converted)) == ["layer2.0.bn1", "layer2.0.bn2"]
    assert type(converted.bn1) is nn.BatchNorm2d


@pytest.mark.parametrize(
    "make",
    [
        small_resnet,
        lambda: nn.Sequential(LinearNorm(3, 4), nn.Dropout()),
        lambda: BatchNormAct2d(3, drop_layer=nn.Dropout),
    ],
    ids=["resnet", "levit", "fused"],
)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_every_module_keeps_its_mode(make: Callable[[], nn.Module], training: bool) -> None:
    converted = convert(make().train(training), "ghost")
    assert {module.training for module in converted.modules()} == {training}


def test_a_layer_that_was_kept_in_evaluation_stays_so() -> None:
    model = small_resnet().train()
    model.bn1.eval()
    converted = convert(model, "ghost")
    assert [name for name, module in converted.named_modules() if not module.training] == ["bn1"]


def test_hooks_on_a_layer_are_still_called() -> None:
    model = small_resnet()
    seen: list[str] = []
    model.bn1.register_forward_hook(lambda *_: seen.append("forward"))
    model.bn1.register_forward_pre_hook(lambda *_: seen.append("pre"))
    converted = convert(model, "ghost", inplace=True)
    seen.clear()
    converted(small_images())
    assert seen == ["pre", "forward"]


def test_parameters_that_do_not_train_still_do_not() -> None:
    model = small_resnet()
    model.bn1.weight.requires_grad_(False)
    converted = convert(model, "ghost")
    assert [name for name, p in converted.named_parameters() if not p.requires_grad] == ["bn1.weight"]


def test_a_network_with_broken_statistics_is_not_called_a_bug_of_ours() -> None:
    model = small_resnet()
    model.bn1.running_var[0] = float("nan")
    try:
        converted = convert(model, "example-weighted")
    except SurgeonError as error:
        assert "bug in surgeon" not in str(error)  # noqa: PT017
        assert "bn1" in str(error)  # noqa: PT017
    else:
        assert torch.isnan(converted.bn1(randn(1, 6, 3, 3))[:, 0]).all()


# ---- the plan a network carries, and converting again ----


def test_a_second_conversion_adds_to_the_first() -> None:
    first = convert(small_resnet(), "ghost:size=2", layers="layer1.*")
    snapshot = Snapshot(first)
    second = convert(first, "example-weighted:alpha=0.3", layers="layer1.0.bn2,last")
    ghost, weighted = {"size": 2, "running": "batch"}, {"alpha": 0.3}
    assert names_and_options(second) == {
        "layer1.0.bn1": {"ghost": ghost},
        "layer1.0.bn2": {"ghost": ghost, "example-weighted": weighted},
        "layer3.0.bn2": {"example-weighted": weighted},
    }
    snapshot.assert_unchanged()
    together = convert(small_resnet(), "ghost@layer1.*:size=2", "example-weighted@layer1.0.bn2,last:alpha=0.3")
    for training in (False, True):
        assert torch.equal(second.train(training)(small_images()), together.train(training)(small_images()))


def test_a_second_conversion_replaces_the_same_rewrite() -> None:
    model = convert(small_resnet(), "example-weighted:alpha=0.3")
    assert not torch.equal(model(small_images()), small_resnet()(small_images()))
    model = convert(model, "example-weighted:alpha=0")
    assert {tuple(o.values()) for o in (r["example-weighted"] for r in names_and_options(model).values())} == {(0.0,)}
    assert torch.equal(model(small_images()), small_resnet()(small_images()))


def test_a_second_conversion_that_contradicts_the_first_is_refused() -> None:
    model = convert(small_resnet(), "ghost")
    snapshot = Snapshot(model)
    with pytest.raises(SurgeonError, match="both change training"):
        convert(model, "batch-group:channel_groups=3", inplace=True)
    snapshot.assert_unchanged()


def test_a_plan_can_be_applied_to_the_same_network_again() -> None:
    converted = convert(small_resnet(), "ghost@stem:size=2", "example-weighted@last:alpha=0.3")
    plan = ResolvedPlan.model_validate_json(converted.surgery.model_dump_json())
    again = apply_plan(small_resnet(), plan)
    assert torch.equal(again(small_images()), converted(small_images()))
    with pytest.raises(SurgeonError, match="'bn1', which this network does not have"):
        apply_plan(nn.Sequential(nn.BatchNorm2d(6)), plan)


def test_a_converted_network_can_be_switched_to_its_identity_and_back() -> None:
    model = convert(small_resnet(), "batch-group:channel_groups=3", "example-weighted:alpha=0.3")
    images, plain = small_images(), small_resnet()(small_images())
    chosen = model(images)
    install_everywhere(model, model.surgery, at_identity=True)
    torch.testing.assert_close(model(images), plain, rtol=1e-6, atol=1e-6)
    install_everywhere(model, model.surgery)
    assert torch.equal(model(images), chosen)


# ---- fused, frozen and flattened layers ----


@pytest.mark.parametrize("flavour", [BatchNormAct2d, FrozenBatchNormAct2d])
def test_activation_and_dropout_of_a_fused_layer_are_kept(flavour: type[nn.Module]) -> None:
    layer = randomise(flavour(4, act_layer=nn.SiLU, drop_layer=lambda: nn.Dropout(0.4)))
    converted = convert(layer, "example-weighted:alpha=0.3")
    assert isinstance(converted.act, nn.SiLU)
    assert isinstance(converted.drop, nn.Dropout)
    x = randn(4, 4, 8, 8)
    expected = F.silu(example_weighted_reference(x, layer, 0.3))
    torch.testing.assert_close(converted.eval()(x.clone()).double(), expected, rtol=1e-5, atol=1e-5)
    outputs = []
    for module in (layer, converted):
        torch.manual_seed(3)
        outputs.append(module.train()(x.clone()))
    assert torch.equal(*outputs)
    assert 0.3 < (outputs[1] == 0).float().mean() < 0.5


@pytest.mark.parametrize("flavour", [FrozenBatchNorm2d, FrozenBatchNormAct2d])
def test_a_frozen_layer_has_no_parameters_and_never_changes(flavour: type[nn.Module]) -> None:
    layer, x = randomise(flavour(4)), randn(3, 4, 5, 5)
    converted = convert(layer, "example-weighted:alpha=0.3")
    assert not list(converted.parameters())
    before = copy.deepcopy(converted.state_dict())
    converted.train()(x.clone())
    torch.testing.assert_close(converted.state_dict(), before, rtol=0, atol=0)
    expected = example_weighted_reference(x, layer, 0.3)
    expected = expected.relu() if hasattr(layer, "act") else expected
    torch.testing.assert_close(converted.eval()(x.clone()).double(), expected, rtol=1e-5, atol=1e-5)


def token_network() -> nn.Module:
    torch.manual_seed(0)
    return randomise(nn.Sequential(LinearNorm(5, 6))).eval()


def test_levits_flattened_tokens_get_the_statistics_of_their_own_image() -> None:
    model, x = token_network(), randn(3, 7, 5)
    converted = convert(model, "example-weighted:alpha=0.3")
    assert list(converted.state_dict()) == list(model.state_dict())
    with torch.no_grad():
        y = converted(x)
        tokens = model[0].linear(x)
        expected = example_weighted_reference(tokens.transpose(1, 2), model[0].bn, 0.3).transpose(1, 2)
        torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
        for i in range(len(x)):
            torch.testing.assert_close(converted(x[i : i + 1]), y[i : i + 1])
            torch.testing.assert_close(converted(torch.cat([x[i : i + 1], 5 * x]))[0], y[i])
    assert y.is_contiguous()


def test_levits_flattened_tokens_are_unchanged_at_alpha_zero_and_in_training() -> None:
    model, x = token_network(), randn(3, 7, 5)
    converted = convert(model, "example-weighted")
    for training in (False, True):
        torch.testing.assert_close(converted.train(training)(x), model.train(training)(x))
    torch.testing.assert_close(converted.state_dict(), model.state_dict())


def test_ghost_groups_of_flattened_tokens_are_groups_of_images() -> None:
    converted = convert(token_network(), "ghost:size=1").train()
    x = randn(3, 7, 5)
    together = converted(x)
    for i in range(len(x)):
        torch.testing.assert_close(converted(x[i : i + 1]), together[i : i + 1])


def test_a_whole_levit_evaluates_an_image_by_itself() -> None:
    torch.manual_seed(0)
    model = randomise(timm.create_model("levit_128s", num_classes=4)).eval()
    images = randn(2, 3, 224, 224)
    with torch.no_grad():
        assert relative_difference(convert(model, "example-weighted")(images), model(images)) < 1e-5
        converted = convert(model, "example-weighted:alpha=0.3", inplace=True)
        together = converted(images)
        assert relative_difference(converted(images[:1]), together[:1]) < 1e-4


# ---- collecting statistics ----


def untracked_network() -> nn.Module:
    return small_resnet(lambda channels: nn.BatchNorm2d(channels, track_running_stats=False))


def batches() -> list[Tensor]:
    return [1 + (1 + i) * small_images(4, seed=i) for i in range(3)]


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x, 0), lambda x: [x]], ids=["tensor", "tuple", "list"])
def test_statistics_of_an_untracked_batchnorm_are_the_average_over_the_batches(
    wrap: Callable[[Tensor], object],
) -> None:
    model = untracked_network()
    weights = {name: parameter.clone() for name, parameter in model.named_parameters()}
    first_inputs = [model.conv1(batch).detach() for batch in batches()]
    assert collect_statistics(model, map(wrap, batches())) is model
    mean = torch.stack([x.mean((0, 2, 3)) for x in first_inputs]).mean(0)
    var = torch.stack([x.var((0, 2, 3), correction=1) for x in first_inputs]).mean(0)
    torch.testing.assert_close(model.bn1.running_mean, mean)
    torch.testing.assert_close(model.bn1.running_var, var)
    assert all(torch.equal(parameter, weights[name]) for name, parameter in model.named_parameters())
    assert all(norm.momentum == 0.1 for name, norm in model.named_modules() if name in SMALL_RESNET_NORMS)
    assert not any(module.training for module in model.modules())
    converted = convert(model, "example-weighted:alpha=0.3")
    assert torch.isfinite(converted(small_images())).all()
    assert "bn1.running_mean" in converted.state_dict()


def test_statistics_can_be_collected_after_the_conversion_too() -> None:
    before, after = untracked_network(), convert(untracked_network(), "ghost:size=64")
    collect_statistics(before, batches())
    collect_statistics(after, batches())
    torch.testing.assert_close(after.bn1.running_mean, before.bn1.running_mean)
    assert after.bn1.has_statistics
    assert torch.isfinite(convert(after, "example-weighted:alpha=0.3")(small_images())).all()


def test_statistics_of_a_group_norm_are_those_of_its_channels() -> None:
    plain = small_resnet(lambda channels: nn.GroupNorm(2, channels))
    model = convert(plain, "example-weighted:alpha=1")
    images = small_images()
    torch.testing.assert_close(model(images), plain(images), rtol=1e-6, atol=1e-6)
    inputs = torch.cat([plain.conv1(batch).detach() for batch in batches()])
    collect_statistics(model, batches())
    torch.testing.assert_close(model.bn1.running_mean, inputs.mean((0, 2, 3)), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.bn1.running_var, inputs.var((0, 2, 3), correction=0), rtol=1e-5, atol=1e-5)
    assert model.bn1.num_batches_tracked == len(batches())
    torch.testing.assert_close(model(images), plain(images), rtol=1e-6, atol=1e-6)
    mixed = convert(model, "example-weighted:alpha=0.9")
    assert not torch.allclose(mixed(images), plain(images), atol=1e-4)


def test_a_fused_group_norm_keeps_its_activation() -> None:
    layer, x = randomise(GroupNormAct(6, num_groups=3, act_layer=nn.SiLU)).eval(), randn(2, 6, 4, 4)
    converted = convert(layer, "example-weighted:alpha=1")
    torch.testing.assert_close(converted(x), layer(x), rtol=1e-6, atol=1e-6)


def test_only_layers_without_statistics_are_touched() -> None:
    model = nn.Sequential(randomise(nn.BatchNorm2d(3)), nn.BatchNorm2d(3, track_running_stats=False)).train()
    before = copy.deepcopy(model[0].state_dict())
    collect_statistics(model, [randn(4, 3, 5, 5)])
    torch.testing.assert_close(model[0].state_dict(), before, rtol=0, atol=0)
    assert model.training
    assert model[0].training


def test_nothing_to_collect_is_an_error() -> None:
    with pytest.raises(SurgeonError, match="nothing to collect"):
        collect_statistics(small_resnet(), batches())


def failing_batches() -> Iterator[Tensor]:
    yield batches()[0]
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("given", "error"),
    [(list, SurgeonError), (failing_batches, OSError), (lambda: [randn(2, 5, 8, 8)], RuntimeError)],
    ids=["no batch", "broken data", "wrong images"],
)
def test_a_failed_collection_leaves_the_network_as_it_was(given: Callable[[], object], error: type[Exception]) -> None:
    model, images = untracked_network(), small_images()
    snapshot, before = Snapshot(model), model(images)
    with pytest.raises(error):
        collect_statistics(model, given())
    assert torch.equal(model(images), before)
    snapshot.assert_unchanged()


# ---- inspection ----


def health(model: nn.Module) -> dict[str, list[str]]:
    return {layer.name: layer.health for layer in inspect_model(model).layers if layer.health}


def test_a_healthy_network_is_reported_in_full() -> None:
    model = small_resnet()
    report = inspect_model(model, "small")
    assert report.model == "small"
    assert report.kinds == {"BatchNorm2d": 7}
    assert report.unhealthy == 0
    assert report.norm_parameters == 7 * 2 * 6
    assert report.parameters == sum(p.numel() for p in model.parameters())
    assert [layer.name for layer in report.layers] == SMALL_RESNET_NORMS
    first = report.layers[0]
    assert (first.channels, first.eps, first.momentum, first.fused, first.rewrites) == (6, 1e-5, 0.1, [], [])
    assert first.norm_free_path is None


def test_rewrites_and_fused_parts_are_reported() -> None:
    model = nn.Sequential(randomise(BatchNormAct2d(6, act_layer=nn.SiLU)), nn.LayerNorm(6))
    for network in (model, convert(model, "ghost:size=2")):
        report = inspect_model(network)
        assert report.kinds == {"BatchNormAct2d": 1, "LayerNorm": 1}
        assert report.layers[0].fused == ["SiLU"]
        assert report.layers[1].channels == 6
    assert report.layers[0].rewrites == ["ghost:size=2,running=batch"]


@pytest.mark.parametrize("rewrite", [None, "ghost"], ids=["plain", "converted"])
def test_sick_statistics_are_told_apart(rewrite: str | None) -> None:
    model = small_resnet()
    if rewrite:
        model = convert(model, rewrite)
    model.bn1.running_var[:2] = 0
    model.get_submodule("layer1.0.bn1").running_mean[3] = float("nan")
    model.get_submodule("layer1.0.bn2").weight.data[:3] = float("inf")
    model.get_submodule("layer2.0.bn1").running_var[0] = -1
    fresh = model.get_submodule("layer2.0.bn2")
    fresh.running_mean.zero_()
    fresh.running_var.fill_(1)
    assert health(model) == {
        "bn1": ["zero variance in 2 of 6 channels"],
        "layer1.0.bn1": ["running_mean has 1 NaN or infinite"],
        "layer1.0.bn2": ["weight has 3 NaN or infinite"],
        "layer2.0.bn1": ["negative variance in 1 of 6 channels"],
        "layer2.0.bn2": ["statistics never updated"],
    }
    assert inspect_model(model).unhealthy == 5


def test_sick_statistics_of_a_second_branch_are_reported() -> None:
    model = convert(small_resnet(), "split")
    assert health(model) == {}
    model.bn1.aux.running_var[:2] = 0
    model.get_submodule("layer1.0.bn1").aux.weight.data[0] = float("nan")
    assert health(model) == {
        "bn1": ["auxiliary branch: zero variance in 2 of 6 channels"],
        "layer1.0.bn1": ["auxiliary branch: weight has 1 NaN or infinite"],
    }


def test_sick_statistics_of_modes_and_gates_are_reported() -> None:
    model = convert(small_resnet(), "mode:modes=2")
    assert health(model) == {}
    model.bn1.modes.running_var[1, :3] = 0
    model.get_submodule("layer1.0.bn1").modes.running_mean[0, 2] = float("inf")
    model.get_submodule("layer1.0.bn2").modes.gate.bias.data[:] = float("nan")
    assert health(model) == {
        "bn1": ["mode 2: zero variance in 3 of 6 channels"],
        "layer1.0.bn1": ["mode 1: running_mean has 1 NaN or infinite"],
        "layer1.0.bn2": ["gate: bias has 2 NaN or infinite"],
    }


@pytest.mark.parametrize("rewrite", ["mode", "mode-group"])
def test_statistics_that_modes_do_not_read_are_not_remarked_on(rewrite: str) -> None:
    """Trained from scratch, only the modes' statistics move."""
    model = convert(nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)), rewrite)
    model.train()(randn(4, 3, 8, 8))
    assert model[1].running_mean.eq(0).all()
    assert health(model) == {}


@pytest.mark.parametrize("rewrite", [None, "ghost"], ids=["plain", "converted"])
def test_missing_statistics_are_reported(rewrite: str | None) -> None:
    model = untracked_network()
    if rewrite:
        model = convert(model, rewrite)
    assert health(model) == {name: ["no running statistics"] for name in SMALL_RESNET_NORMS}


def open_layers(model: nn.Module, x: Tensor) -> list[str]:
    snapshot = Snapshot(model)
    report = inspect_model(model, inputs=(x,))
    snapshot.assert_unchanged()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(layer.norm_free_path is not None for layer in report.layers)
    return [layer.name for layer in report.layers if layer.norm_free_path]


@pytest.mark.parametrize("rewrite", [None, "example-weighted:alpha=0.3"], ids=["plain", "converted"])
def test_in_a_residual_network_shortcuts_lead_past_later_norms(rewrite: str | None) -> None:
    model = small_resnet()
    if rewrite:
        model = convert(model, rewrite)
    expected = [name for name in SMALL_RESNET_NORMS if name == "bn1" or name.endswith("bn2")]
    assert open_layers(model, small_images()) == expected


def test_in_a_plain_chain_only_the_last_norm_is_free() -> None:
    stages = [(nn.Conv2d(3, 3, 1), BatchNormAct2d(3), nn.ReLU(inplace=True)) for _ in range(3)]
    model = nn.Sequential(*(layer for stage in stages for layer in stage), nn.Flatten(), nn.Linear(48, 2))
    assert open_layers(model, randn(2, 3, 4, 4)) == ["7"]
