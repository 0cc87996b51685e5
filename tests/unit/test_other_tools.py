"""Tools of torch and timm that take hold of BatchNorm layers: right on converted networks, or refused by a sentence."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from timm.layers import (
    convert_splitbn_model,
    convert_sync_batchnorm,
    freeze_batch_norm_2d,
    unfreeze_batch_norm_2d,
)
from timm.utils import freeze, reparameterize_model, unfreeze
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, update_bn
from torchvision.ops import _utils as torchvision_utils
from torchvision.ops.misc import FrozenBatchNorm2d

import surgeon
from surgeon.layers.surgical import SurgicalNorm

REWRITES = ("example-weighted:alpha=0.3", "example-weighted", "ghost:size=2", "split", "mode", "mode-group")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6))
    return with_statistics(model.double())


def with_statistics(model: nn.Module) -> Any:
    """Statistics and parameters unlike the initial ones, so that dropping them would show."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for tensor in (module.running_mean, module.bias):
                tensor.data.copy_(torch.randn(tensor.shape, generator=generator) * 0.2)
            for tensor in (module.running_var, module.weight):
                tensor.data.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return model


def batches(number: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(6, 3, 7, 7, generator=generator, dtype=torch.double) * (i + 1) for i in range(number)]


@pytest.mark.parametrize(
    ("original", "kind"),
    [
        (nn.BatchNorm1d(4), nn.BatchNorm1d),
        (nn.BatchNorm2d(4), nn.BatchNorm2d),
        (nn.BatchNorm3d(4), nn.BatchNorm3d),
        (nn.SyncBatchNorm(4), nn.SyncBatchNorm),
        (timm.layers.BatchNormAct2d(4), nn.BatchNorm2d),
        (timm.layers.SyncBatchNormAct(4), nn.SyncBatchNorm),
        (FrozenBatchNorm2d(4), FrozenBatchNorm2d),
        (timm.layers.FrozenBatchNormAct2d(4), FrozenBatchNorm2d),
        (nn.GroupNorm(2, 4), nn.GroupNorm),
    ],
)
def test_a_rewritten_layer_is_an_instance_of_what_it_replaces(original: nn.Module, kind: type[nn.Module]) -> None:
    alpha = 1 if isinstance(original, nn.GroupNorm) else 0.3
    converted = surgeon.convert(nn.Sequential(original), "example-weighted", alpha=alpha)
    again = surgeon.convert(copy.deepcopy(converted), "example-weighted", alpha=1)
    for layer in (converted[0], again[0]):
        assert isinstance(layer, kind)
        assert isinstance(layer, SurgicalNorm)
        assert "eps=1e-05" in repr(layer)
        assert "affine" not in dict(inspect.getmembers(layer))


# Folding


FOLDABLE = {
    "repvit_m0_9": 64,
    "efficientvit_m0": 64,
    "shvit_s1": 64,
    "levit_conv_128s": 224,
    "levit_128s": 224,
    "tiny_vit_5m_224": 224,
    "repvgg_a0": 64,
    "mobileone_s0": 64,
    "fastvit_t8": 64,
    "repghostnet_050": 64,
}


@pytest.mark.parametrize("name", FOLDABLE)
def test_timm_folds_what_evaluates_as_batch_norm_and_nothing_else(name: str) -> None:
    original = with_statistics(timm.create_model(name)).eval()
    x = torch.randn(1, 3, FOLDABLE[name], FOLDABLE[name], generator=torch.Generator().manual_seed(0))
    converted = surgeon.convert(original, "ghost:size=2", "example-weighted")
    folded = reparameterize_model(converted)
    assert sum(isinstance(m, SurgicalNorm) for m in folded.modules()) < len(surgeon.inspect_model(converted).layers)
    with torch.no_grad():
        expected = original(x)
        torch.testing.assert_close(folded(x), expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())
    surgeon.convert(converted, "example-weighted", alpha=0.1, inplace=True)
    with pytest.raises(surgeon.SurgeonError, match="cannot be folded or replaced: it mixes each example's own"):
        reparameterize_model(converted)
    with pytest.raises(surgeon.SurgeonError, match="has an auxiliary branch"):
        reparameterize_model(surgeon.convert(original, "split"))


def test_torch_folds_what_evaluates_as_batch_norm_and_nothing_else() -> None:
    original, (x,) = network().eval(), batches(1)
    converted = surgeon.convert(original, "ghost:size=2")
    folded = nn.utils.fuse_conv_bn_eval(converted[0], converted[1])
    torch.testing.assert_close(folded(x), original[:2](x))
    for spec in ("example-weighted:alpha=0.3", "split", "mode", "mode-group", "batch-group:channel_groups=2"):
        rewritten = surgeon.convert(original, spec).eval()
        with pytest.raises(surgeon.SurgeonError, match="cannot be folded or replaced"):
            nn.utils.fuse_conv_bn_eval(rewritten[0], rewritten[1])


def test_a_network_with_units_is_not_folded() -> None:
    model = surgeon.convert(timm.create_model("repvit_m0_9").eval(), "selfnorm")
    with pytest.raises(surgeon.SurgeonError, match="with selfnorm units cannot be folded"):
        reparameterize_model(model)


def test_an_eps_set_by_hand_counts() -> None:
    converted, (x,) = surgeon.convert(network().eval(), "example-weighted", alpha=0.3), batches(1)
    before = converted(x)
    converted[1].eps = 0.5
    assert converted[1].epsilon == 0.5
    assert not torch.allclose(converted(x), before)


# Replacing


@pytest.mark.parametrize("spec", REWRITES)
@pytest.mark.parametrize(
    "tool",
    [
        nn.SyncBatchNorm.convert_sync_batchnorm,
        convert_sync_batchnorm,
        convert_splitbn_model,
        freeze_batch_norm_2d,
        freeze,
    ],
)
def test_no_tool_replaces_a_rewritten_layer(tool: Callable[[nn.Module], Any], spec: str) -> None:
    converted = surgeon.convert(network(), spec)
    with pytest.raises(surgeon.SurgeonError, match=r"cannot be (folded or )?replaced"):
        tool(converted)
    assert len(surgeon.inspect_model(converted).layers) == 2


@pytest.mark.parametrize("tool", [unfreeze_batch_norm_2d, unfreeze])
def test_no_tool_unfreezes_by_replacing(tool: Callable[[nn.Module], Any]) -> None:
    frozen = freeze_batch_norm_2d(network())
    with pytest.raises(surgeon.SurgeonError, match="cannot be replaced"):
        tool(surgeon.convert(frozen, "example-weighted"))


def test_what_these_tools_make_of_the_original_is_converted() -> None:
    (x,) = batches(1)
    for made in (freeze_batch_norm_2d(network()), nn.SyncBatchNorm.convert_sync_batchnorm(network())):
        made.double().eval()
        torch.testing.assert_close(surgeon.convert(made, "example-weighted")(x), made(x))


def test_freezing_by_mode_and_by_gradient_works() -> None:
    converted, (x,) = surgeon.convert(network(), "ghost:size=2").train(), batches(1)
    for module in converted.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval().requires_grad_(False)
    before = copy.deepcopy(converted.state_dict())
    converted(x).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in converted.state_dict().items())
    assert converted[1].weight.grad is None


# Statistics


@pytest.mark.parametrize("spec", ["example-weighted:alpha=0.3", "mode:modes=1"])
def test_update_bn_estimates_what_it_does_in_the_original(spec: str) -> None:
    original = network()
    converted = surgeon.convert(original, spec)
    update_bn(batches(), original)
    update_bn(batches(), converted)
    for index in (1, 4):
        ours = converted[index].modes if spec.startswith("mode") else converted[index]
        for name in ("running_mean", "running_var"):
            torch.testing.assert_close(getattr(ours, name).squeeze(0), getattr(original[index], name))
        assert converted[index].num_batches_tracked == 3
        assert converted[index].momentum == 0.1


def test_update_bn_estimates_ghost_statistics_as_moments_of_all_batches() -> None:
    converted = surgeon.convert(network(), "ghost:size=2")
    update_bn(batches(), converted)
    features = torch.cat([converted[0](x) for x in batches()])
    torch.testing.assert_close(converted[1].running_mean, features.mean((0, 2, 3)))
    torch.testing.assert_close(converted[1].running_var, features.var((0, 2, 3), correction=0))
    assert not torch.equal(converted[4].running_mean, network()[4].running_mean)


def test_update_bn_estimates_both_branches_or_leaves_the_one_not_taken() -> None:
    original, converted = network(), surgeon.convert(network(), "split")
    update_bn(batches(), converted)
    aux = converted[1].aux
    assert torch.equal(aux.running_mean, original[1].running_mean)
    first, second = network(), network()
    update_bn([x[:3] for x in batches()], first)
    update_bn([x[3:] for x in batches()], second)
    with surgeon.branch(converted, "halves"):
        update_bn(batches(), converted)
    for ours, theirs in ((converted[1], first[1]), (aux, second[1]), (converted[4], first[4])):
        torch.testing.assert_close(ours.running_mean, theirs.running_mean)
        torch.testing.assert_close(ours.running_var, theirs.running_var)


def test_an_averaged_network_keeps_alpha_and_gets_statistics() -> None:
    original, converted = network(), surgeon.convert(network(), "example-weighted", alpha=0.3)
    averages = [AveragedModel(model) for model in (original, converted)]
    for average, model in zip(averages, (original, converted), strict=True):
        average.update_parameters(model)
        update_bn(batches(), average)
    plain, ours = (average.module for average in averages)
    assert ours[1].alpha_values == 0.3
    torch.testing.assert_close(ours[4].running_var, plain[4].running_var)


@pytest.mark.parametrize("spec", ["example-weighted:alpha=0.3", "ghost:size=2", "batch-group:channel_groups=2"])
def test_statistics_that_are_not_tracked_stay(spec: str) -> None:
    original, (x,) = network().train(), batches(1)
    early, late = copy.deepcopy(original), surgeon.convert(original, spec).train()
    early[1].track_running_stats = late[1].track_running_stats = False
    for converted in (surgeon.convert(early, spec).train(), late):
        converted(x)
        assert torch.equal(converted[1].running_mean, original[1].running_mean)
        assert converted[1].num_batches_tracked == 0
        assert converted[4].num_batches_tracked == 1


def test_resetting_gives_initial_parameters_and_statistics() -> None:
    layer = surgeon.convert(network(), "example-weighted", alpha=0.3)[1]
    layer.reset_parameters()
    fresh = nn.BatchNorm2d(4).double().state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in layer.state_dict().items())


# Other helpers


def test_parameter_groups_by_class_are_those_of_the_original() -> None:
    original = network()
    ours, theirs = (
        [[p.shape for p in group] for group in torchvision_utils.split_normalization_params(model)]
        for model in (surgeon.convert(original, "ghost"), original)
    )
    assert ours == theirs


def test_functorch_drops_running_statistics() -> None:
    original, (x,) = network().eval(), batches(1)
    converted = surgeon.convert(original, "ghost:size=2").eval()
    for model in (original, converted):
        torch.func.replace_all_batch_norm_modules_(model)
    torch.testing.assert_close(converted(x), original(x))


@pytest.mark.parametrize("spec", REWRITES)
@pytest.mark.filterwarnings("ignore")
def test_tracing_reads_no_attribute_that_is_refused(spec: str) -> None:
    converted, (x,) = surgeon.convert(network(), spec).eval(), batches(1)
    torch.testing.assert_close(torch.jit.trace(converted, x)(x), converted(x))
