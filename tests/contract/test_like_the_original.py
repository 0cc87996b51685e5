"""Inputs at the border of what a layer takes: a converted layer accepts and refuses what its original does."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torch.fx
from timm.layers import BatchNormAct2d
from torch import Tensor, nn
from torchvision.models.feature_extraction import create_feature_extractor

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.inserts.crossnorm.layer import CrossNorm
from surgeon.norms import Phase
from surgeon.surgery.apply import convert
from tests.contract.test_insert_contract import SPECS, converted, trained
from tests.contract.test_norm_contract import CHANNELS, SINGLE, Specs, every_rewrite, make, phases
from tests.helpers import randn, randomise, small_images, small_resnet
from tests.reference.norms import example_weighted_reference

both_modes = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])

LAYERS = {
    "1d": lambda: nn.BatchNorm1d(CHANNELS),
    "2d": lambda: nn.BatchNorm2d(CHANNELS),
    "3d": lambda: nn.BatchNorm3d(CHANNELS),
    "sync": lambda: nn.SyncBatchNorm(CHANNELS),
    "timm": lambda: BatchNormAct2d(CHANNELS),
}
SHAPES = {1: (4,), 2: (4, 6), 3: (4, 6, 5), 4: (4, 6, 5, 3), 5: (4, 6, 2, 5, 3), 6: (4, 6, 2, 2, 2, 2)}


@both_modes
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("specs", SINGLE, ids=" + ".join)
def test_inputs_of_other_dimensions_are_refused_where_the_original_refuses_them(
    specs: Specs, kind: str, training: bool
) -> None:
    original = LAYERS[kind]().train(training)
    ours = convert(original, *specs)
    for shape in SHAPES.values():
        x = randn(*shape)
        try:
            expected = original(x).shape
        except (ValueError, AssertionError, RuntimeError):
            with pytest.raises(ValueError, match=rf"expected .*D.* input \(got {len(shape)}D input\)"):
                ours(x)
        else:
            assert ours(x).shape == expected, shape


@both_modes
@pytest.mark.parametrize("shape", [(0, 6, 5), (3, 6, 0), (0, 6), (0, 6, 0)])
@every_rewrite
def test_an_empty_batch_is_taken_as_by_the_original(specs: Specs, shape: tuple[int, ...], training: bool) -> None:
    original = randomise(nn.BatchNorm1d(CHANNELS)).train(training)
    ours = convert(original, *specs)
    results = []
    for layer in (original, ours):
        x = torch.empty(shape, requires_grad=True)
        y = layer(x)
        y.sum().backward()
        results.append((y.detach(), x.grad, layer.num_batches_tracked.clone()))
    torch.testing.assert_close(*results)
    for name, value in ours.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(value, convert(original, *specs).state_dict()[name])


def test_an_empty_batch_leaves_collected_group_statistics_alone() -> None:
    layer = convert(nn.GroupNorm(2, CHANNELS), "example-weighted:alpha=1").train()
    assert layer(torch.empty(0, CHANNELS, 4)).shape == (0, CHANNELS, 4)
    assert torch.equal(layer.running_var, torch.ones(CHANNELS))
    assert layer.num_batches_tracked == 0


@pytest.mark.parametrize("shape", [(1, 6), (1, 6, 1)])
@pytest.mark.parametrize("specs", SINGLE, ids=" + ".join)
def test_one_value_per_channel_is_refused_in_training_as_by_the_original(specs: Specs, shape: tuple[int, ...]) -> None:
    ours = convert(nn.BatchNorm1d(CHANNELS), *specs).train()
    if specs[0].startswith(("mode-group", "batch-group")):  # their statistics are of several channels
        assert ours(torch.zeros(shape)).shape == shape
        return
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        ours(torch.zeros(shape))


def test_levit_still_takes_tokens() -> None:
    model = timm.create_model("levit_128s", num_classes=3, img_size=32).eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(convert(model, "ghost:size=2")(x), model(x), rtol=1e-4, atol=1e-4)
    assert convert(model, "ghost:size=2").train()(x).isfinite().all()


# ---- infinite numbers ----


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -0.1, 1.1])
def test_alpha_is_a_weight(value: float) -> None:
    layer = convert(nn.BatchNorm2d(3), "example-weighted:alpha=0.1")
    for alpha in (value, [0.1, value, 0.2]):
        with pytest.raises(SurgeonError, match="from 0 to 1"):
            layer.set_alpha(alpha)
    with pytest.raises(SurgeonError, match="3 channels"):
        layer.set_alpha([0.1, 0.2])
    assert layer.constant_alpha == 0.1


@pytest.mark.parametrize("alpha", [torch.tensor([0.1, 0.2, 0.3]), np.array([0.1, 0.2, 0.3]), "0.1", None])
def test_an_alpha_that_is_neither_a_number_nor_a_list_is_refused(alpha: Any) -> None:
    layer = convert(nn.BatchNorm2d(3), "example-weighted:alpha=0.1")
    with pytest.raises(SurgeonError, match=f"a number or a list .*, not {type(alpha).__name__}"):
        layer.set_alpha(alpha)
    assert layer.constant_alpha == 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("extreme", [float("inf"), float("-inf"), float("nan"), 1e30])
def test_a_channel_whose_alpha_is_zero_is_the_original_whatever_its_values(extreme: float, dtype: torch.dtype) -> None:
    original = randomise(nn.BatchNorm2d(3)).eval().to(dtype)
    layer = convert(original, "example-weighted:alpha=0.3")
    layer.set_alpha([0.3, 0.0, 0.2])
    x = randn(2, 3, 4, 5, dtype=dtype)
    calm = example_weighted_reference(x, layer, torch.tensor([0.3, 0.0, 0.2]))
    x[0, 1, 2, 3] = extreme
    for memory_format in (torch.contiguous_format, torch.channels_last):
        for recording in (True, False):
            with torch.set_grad_enabled(recording):
                y = layer(x.contiguous(memory_format=memory_format)).detach()
            torch.testing.assert_close(y[:, 1], original(x)[:, 1].detach(), rtol=1e-5, atol=1e-5, equal_nan=True)
            torch.testing.assert_close(y[:, ::2].double(), calm[:, ::2], rtol=1e-4, atol=1e-5)


# ---- half precision ----


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("specs", SINGLE, ids=" + ".join)
def test_statistics_of_many_values_in_half_precision(specs: Specs, dtype: torch.dtype) -> None:
    """More than 65,504 values per group: float16 cannot count them."""
    x = (randn(3, CHANNELS, 160, 160) + 0.5).to(dtype)
    layer = convert(nn.BatchNorm2d(CHANNELS, momentum=1.0), *specs).train().to(dtype)
    y = layer(x)
    assert y.isfinite().all()
    state = layer.state_dict()
    if "modes.running_var" in state:
        assert state["modes.running_mean"].sub(0.5).abs().max() < 0.02
        assert state["modes.running_var"].sub(1).abs().max() < 0.02
    elif Phase.TRAINING in phases(specs) and not specs[0].startswith("mode-group"):
        assert state["running_mean"].sub(0.5).abs().max() < 0.02
        assert state["running_var"].sub(1).abs().max() < 0.02


@pytest.mark.parametrize("specs", SINGLE, ids=" + ".join)
def test_evaluation_in_half_precision_does_not_overflow_within(specs: Specs) -> None:
    """The squares of means above 256 are no numbers of float16."""
    layer, x = make()
    layer.running_mean.copy_(torch.tensor([-900.0, 900.0, -500.0, 500.0, 300.0, -300.0]))
    layer.running_var.fill_(1e4)
    exact = convert(layer, *specs)
    x = (x * 100 + layer.running_mean[:, None, None]).half()
    y = convert(layer, *specs).half()(x)
    torch.testing.assert_close(y.float(), exact(x.float()), rtol=0.02, atol=0.02)


# ---- symbolic tracing ----


@both_modes
@every_rewrite
def test_features_are_extracted_from_a_rewritten_network(specs: Specs, training: bool) -> None:
    model = convert(small_resnet(), *specs).train(training)
    check_extractor(model)


@pytest.mark.parametrize("spec", SPECS)
def test_features_are_extracted_past_inserts(spec: str) -> None:
    model, x = trained(converted(spec)).eval(), small_images(6)
    extractor = create_feature_extractor(model, ["layer2", "fc"])
    assert_close(extractor(x)["fc"], model(x))
    outputs = torch.stack([extractor.train()(x)["layer2"] for _ in range(4)])
    assert outputs.isfinite().all()
    if "site=image" not in spec:  # a hook of the network itself: torch.fx never runs those
        acts = not torch.equal(outputs[0], extractor.eval()(x)["layer2"])
        assert acts


def test_traced_crossnorm_units_act_as_often_each_for_itself() -> None:
    model = converted("crossnorm:active=1,p=0.5,seed=0").train()
    model(small_images(2))  # what this step has drawn does not stay for ever
    traced = torch.fx.symbolic_trace(model)
    acted = []
    for unit in (module for module in model.modules() if isinstance(module, CrossNorm)):
        unit._restyled = lambda x, *_: acted.append(1) or x
    for _ in range(150):
        traced(small_images(2))
    assert 50 < len(acted) < 100  # three units, each with probability 1/6


def check_extractor(model: nn.Module) -> None:
    """The extractor's last layer is the network's own, it follows train() and eval(), and moves the statistics."""
    twin, x = copy.deepcopy(model), small_images(6)
    extractor = create_feature_extractor(model, ["layer1.0.bn1", "fc"])
    assert_close(extractor(x)["fc"], twin(x))
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert_close(extractor.eval()(x)["fc"], twin.eval()(x))
    assert_close(extractor.train()(x)["fc"], twin.train()(x))


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@every_rewrite
def test_the_parts_of_a_fused_layer_stay_nodes(specs: Specs) -> None:
    model = nn.Sequential(nn.Conv2d(3, CHANNELS, 3), randomise(BatchNormAct2d(CHANNELS, act_layer=nn.SiLU))).eval()
    ours, x = convert(model, *specs), small_images()
    traced = create_feature_extractor(ours, {"1.act": "features"})
    assert_close(traced(x)["features"], ours(x))


@every_rewrite
def test_a_traced_network_follows_alpha_and_mode(specs: Specs) -> None:
    model, x = convert(small_resnet(), *specs), small_images(6)
    traced = torch.fx.symbolic_trace(model)
    if specs == ("example-weighted:alpha=0.3",):
        for layer in model.modules():
            if hasattr(layer, "set_alpha"):
                layer.set_alpha(0.1)
    assert_close(traced(x), model(x))
    twin = copy.deepcopy(model).train()
    assert_close(traced.train()(x), twin(x))


@every_rewrite
def test_a_layer_alone_is_traced_in_evaluation(specs: Specs) -> None:
    layer, x = make()
    ours = convert(layer, *specs)
    assert_close(torch.fx.symbolic_trace(ours)(x), ours(x))


def test_a_traced_network_is_copied_and_pickled(tmp_path: object) -> None:
    model, x = surgeon.convert(small_resnet(), "ghost:size=3", "example-weighted:alpha=0.2"), small_images()
    traced = torch.fx.symbolic_trace(model)
    torch.save(traced, f"{tmp_path}/traced.pt")
    for again in (copy.deepcopy(traced), torch.load(f"{tmp_path}/traced.pt", weights_only=False)):
        assert_close(again(x), model(x))
