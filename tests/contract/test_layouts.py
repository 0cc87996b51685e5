"""Every rewrite, insert and mix on inputs in every memory layout and dtype, against formulas in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from timm.layers.lambda_layer import LambdaLayer
from torch import Tensor, nn

import surgeon
from surgeon.augment.base import Kind, augments
from surgeon.inserts.crossnorm.styles import Box, cross_normalise, cross_normalise_channels
from surgeon.inserts.moex.exchange import exchange_moments
from surgeon.inserts.selfnorm.layer import SelfNorm
from surgeon.surgery.apply import convert
from tests.contract.layouts import (
    CHANNELS,
    IMAGES,
    LAYOUTS,
    TOLERANCES,
    WITH_POSITIONS,
    assert_near,
    contiguous_double,
    laid_out,
)
from tests.contract.references import REFERENCES, Reference, columns, over, positions
from tests.contract.test_norm_contract import SINGLE
from tests.helpers import randn, randomise

BATCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
both_modes = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])


def check(layer: nn.Module, reference: Reference, layout: str, dtype: torch.dtype) -> None:
    """Output, gradients and statistics of a layer, with inputs and gradients of its output in this layout."""
    twin = copy.deepcopy(layer).double()
    x, grad = laid_out(layout, dtype).detach().requires_grad_(), laid_out(layout, dtype, seed=1)
    assert x.stride() == laid_out(layout, dtype).stride()
    exact = contiguous_double(x).requires_grad_()
    results = []
    for each, features, upstream, compute in (
        (layer, x, grad, lambda x: layer(x)),
        (twin, exact, contiguous_double(grad), lambda x: reference(twin, x)),
    ):
        parameters = dict(each.named_parameters())
        y = compute(features)
        wanted = [features, *parameters.values()]
        gradients = torch.autograd.grad(y, wanted, upstream, allow_unused=True, materialize_grads=True)
        names = ["gradient of input", *(f"gradient of {name}" for name in parameters)]
        results.append({"output": y, **dict(zip(names, gradients, strict=True)), **dict(each.named_buffers())})
    ours, expected = results
    for name, value in expected.items():
        if value.is_floating_point():
            assert_near(ours[name], value, dtype, f"{name} of {layout} in {dtype}")
    assert ours["output"].dtype == dtype


@both_modes
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spec", [spec for (spec,) in SINGLE])
def test_norms(spec: str, layout: str, training: bool) -> None:
    in_training, in_evaluation = REFERENCES.get(spec, (nn.Module.__call__, nn.Module.__call__))
    for dtype in TOLERANCES:
        original = randomise(BATCH_NORMS[LAYOUTS[layout](torch.empty).dim()](CHANNELS))
        layer = convert(original, spec).train(training)
        for parameter in getattr(layer, "modes", nn.Module()).parameters():
            parameter.data.copy_(randn(*parameter.shape, seed=3))  # modes that differ
        check(layer.to(dtype), in_training if training else in_evaluation, layout, dtype)


def group_norm(layer: nn.Module, x: Tensor) -> Tensor:
    if layer.training:
        mean, var = over(x, 0, *positions(x))
        with torch.no_grad():
            layer.running_mean += layer.momentum * (mean.flatten() - layer.running_mean)
            square = (1 - layer.momentum) * 1 + layer.momentum * (var + mean**2).flatten()
            layer.running_var.copy_(square - layer.running_mean**2)
    return F.group_norm(x, 2, layer.weight, layer.bias, layer.epsilon)


@both_modes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_group_norm(layout: str, training: bool) -> None:
    for dtype in TOLERANCES:
        layer = convert(randomise(nn.GroupNorm(2, CHANNELS)), "example-weighted:alpha=1").train(training)
        check(layer.to(dtype), group_norm, layout, dtype)


# ---- inserts ----

PERMUTATION = torch.tensor([3, 0, 1, 6, 2, 4, 5])
OTHER_CHANNELS = torch.tensor([2, 0, 5, 1, 3, 4])


class Function(nn.Module):
    """A function of features as a layer."""

    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x)


def restyled(x: Tensor, dims: tuple[int, ...], order: Tensor, axis: int, style: Tensor | None = None) -> Tensor:
    """The mean and deviation of others: unbiased, with eps 1e-5."""

    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.mean(dims, keepdim=True), (x.var(dims, correction=1, keepdim=True) + 1e-5).sqrt()

    mean, std = moments(x)
    other_mean, other_std = (t.index_select(axis, order) for t in moments(x if style is None else style))
    return (x - mean) / std * other_std + other_mean


@pytest.mark.parametrize("layout", WITH_POSITIONS)
@pytest.mark.parametrize("kind", ["pono", "in", "ln", "gn", "gpono"])
def test_moex(kind: str, layout: str) -> None:
    def reference(_: nn.Module, x: Tensor) -> Tensor:
        grouped = x.reshape(len(x), 2, -1, *x.shape[2:]) if kind.startswith("g") else x[:, None]
        over_space = tuple(range(3, grouped.dim()))
        dims = {"pono": (2,), "in": over_space, "ln": (2, *over_space), "gn": (2, *over_space), "gpono": (2,)}[kind]
        return restyled(grouped, dims, PERMUTATION, 0).reshape(x.shape)

    if kind.endswith("pono") and layout == "one channel expanded":
        pytest.skip("channels that are equal have no deviation, and rounding is all that is left")
    for dtype in TOLERANCES:
        layer = Function(lambda x: exchange_moments(x, PERMUTATION, kind, groups=2))
        check(layer, reference, layout, dtype)


@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize("box", [None, (1, 0, 4, 2)])
def test_crossnorm(box: Box | None, layout: str) -> None:
    def between(_: nn.Module, x: Tensor) -> Tensor:
        style = None if box is None else x[:, :, 1:4, :2]
        return restyled(x, (2, 3), PERMUTATION, 0, style)

    def within(_: nn.Module, x: Tensor) -> Tensor:
        return restyled(x, (2, 3), OTHER_CHANNELS, 1)

    for dtype in TOLERANCES:
        check(Function(lambda x: cross_normalise(x, PERMUTATION, style_box=box)), between, layout, dtype)
        check(Function(lambda x: cross_normalise_channels(x, OTHER_CHANNELS)), within, layout, dtype)


def selfnorm(layer: Any, x: Tensor) -> Tensor:
    dims = positions(x)
    mean, std = x.mean(dims), (x.var(dims, correction=1) + 1e-12).sqrt()
    gates = []
    for fc, norm in ((layer.g_fc, layer.g_bn), (layer.f_fc, layer.f_bn)):
        combined = mean * fc.weight[:, 0, 0] + std * fc.weight[:, 0, 1]
        gates.append(2 * norm(combined).sigmoid())
    g, f = (columns(t, x) for t in gates)
    return x * g + columns(mean, x) * (f - g)


@both_modes
@pytest.mark.parametrize("layout", WITH_POSITIONS)
def test_selfnorm(layout: str, training: bool) -> None:
    if layout == "one example expanded" and training:
        pytest.skip("examples that are equal have no deviation in BatchNorm, and rounding is all that is left")
    for dtype in TOLERANCES:
        torch.manual_seed(0)
        unit = randomise(SelfNorm(CHANNELS, two_sided=True)).train(training)
        if dtype is torch.bfloat16:  # features in half precision through gates that are not
            check(unit, selfnorm, layout, dtype)
        else:
            check(unit.to(dtype), selfnorm, layout, dtype)


# ---- mixes ----

MIXES = [name for name in augments if augments[name].kind is Kind.MIX]


@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize("name", MIXES)
def test_mixes(name: str, layout: str) -> None:
    """In float64 of contiguous images no kernel takes part, and the draws are the same."""
    augment = augments[name]
    mix = augment.build(augment.configure({}), None)
    for dtype in TOLERANCES:
        images = laid_out(layout, dtype)
        before = images.clone()
        made, permutation, kept = mix.mixed(images, torch.Generator().manual_seed(2))
        exact = contiguous_double(images)
        if name == "random-elements":  # drawn in the order in which they are in memory
            both = made.double().eq(exact) | made.double().eq(exact[permutation])
            assert both.all()
            own = (made.double() == exact).flatten(1).double().mean(1)
            assert (own + 1e-6 >= kept.double()).all()
        else:
            expected = mix.mixed(exact, torch.Generator().manual_seed(2))
            shares = torch.float32 if dtype is torch.float64 else dtype  # which are never drawn in float64
            assert_near(made, expected.images, shares, f"{layout} in {dtype}")
            torch.testing.assert_close(kept.double(), expected.kept.double(), rtol=1e-5, atol=1e-5)
        assert torch.equal(images, before)
        assert made.shape == images.shape


# ---- a network with such layouts ----


class Ghost(nn.BatchNorm2d):
    """Ghost BatchNorm in groups of two, written out."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([F.batch_norm(p, None, None, self.weight, self.bias, True, 0, self.eps) for p in x.split(2)])


def test_a_part_of_a_network_that_normalises_permuted_features_has_the_right_gradients() -> None:
    """timm's lambda layer normalises slices of channels, permuted."""
    torch.manual_seed(0)
    plain: Any = randomise(LambdaLayer(16, feat_size=(4, 4), dim_head=4, num_heads=4)).train()
    ours, exact = surgeon.convert(plain, "ghost:size=2"), copy.deepcopy(plain).double()
    for name in ("norm_q", "norm_v"):
        written_out = Ghost(getattr(plain, name).num_features).double()
        written_out.load_state_dict(getattr(plain, name).state_dict())
        setattr(exact, name, written_out)
    x, upstream = randn(5, 16, 4, 4), randn(5, 16, 4, 4, seed=1)
    gradients = [
        torch.autograd.grad(each(x.to(dtype)), list(each.parameters()), upstream.to(dtype))
        for each, dtype in ((ours, torch.float32), (exact, torch.float64))
    ]
    for (name, _), gradient, expected in zip(plain.named_parameters(), *gradients, strict=True):
        assert_near(gradient, expected, torch.float32, name)
