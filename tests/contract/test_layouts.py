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
from tests.contract.test_norm_contract import SINGLE
from tests.helpers import randn, randomise
from tests.reference import inserts, mixes
from tests.reference.norms import REFERENCES, Reference, group_norm

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


@pytest.mark.parametrize("layout", WITH_POSITIONS)
@pytest.mark.parametrize("kind", ["pono", "in", "ln", "gn", "gpono"])
def test_moex(kind: str, layout: str) -> None:
    def reference(_: nn.Module, x: Tensor) -> Tensor:
        return inserts.moex(x, PERMUTATION, kind, groups=2)

    if kind.endswith("pono") and layout == "one channel expanded":
        pytest.skip("channels that are equal have no deviation, and rounding is all that is left")
    for dtype in TOLERANCES:
        layer = Function(lambda x: exchange_moments(x, PERMUTATION, kind, groups=2))
        check(layer, reference, layout, dtype)


@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize("box", [None, (1, 0, 4, 2)])
def test_crossnorm(box: Box | None, layout: str) -> None:
    def between(_: nn.Module, x: Tensor) -> Tensor:
        return inserts.crossnorm(x, PERMUTATION, style=box)

    def within(_: nn.Module, x: Tensor) -> Tensor:
        return inserts.crossnorm_of_channels(x, OTHER_CHANNELS)

    for dtype in TOLERANCES:
        check(Function(lambda x: cross_normalise(x, PERMUTATION, style_box=box)), between, layout, dtype)
        check(Function(lambda x: cross_normalise_channels(x, OTHER_CHANNELS)), within, layout, dtype)


@both_modes
@pytest.mark.parametrize("layout", WITH_POSITIONS)
def test_selfnorm(layout: str, training: bool) -> None:
    if layout == "one example expanded" and training:
        pytest.skip("examples that are equal have no deviation in BatchNorm, and rounding is all that is left")
    for dtype in TOLERANCES:
        torch.manual_seed(0)
        unit = randomise(SelfNorm(CHANNELS, two_sided=True)).train(training)
        if dtype is torch.bfloat16:  # features in half precision through gates that are not
            check(unit, inserts.selfnorm, layout, dtype)
        else:
            check(unit.to(dtype), inserts.selfnorm, layout, dtype)


# ---- mixes ----

MIXES = [name for name in augments if augments[name].kind is Kind.MIX]


@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize("name", MIXES)
def test_mixes(name: str, layout: str) -> None:
    """Exact in float64, of which every pixel and every share is explained; near that in other formats."""
    augment = augments[name]
    mix = augment.build(augment.configure({}), None)
    for dtype in TOLERANCES:
        images = laid_out(layout, dtype)
        before = images.clone()
        made, permutation, kept = mix.mixed(images, torch.Generator().manual_seed(2))
        assert torch.equal(images, before)
        assert made.shape == images.shape
        assert made.dtype == dtype
        exact = contiguous_double(images)
        expected = mix.mixed(exact, torch.Generator().manual_seed(2))
        if name == "random-elements":  # which are drawn in the order in which they are in memory
            own, other = (made.double() == source for source in (exact, exact[permutation]))
            assert (own | other).all()
            assert (own.flatten(1).double().mean(1) + 1e-6 >= kept).all()  # some are equal in both
        else:
            shares = torch.float32 if dtype is torch.float64 else dtype  # which are never drawn in float64
            assert_near(made, expected.images, shares, f"{layout} in {dtype}")
            torch.testing.assert_close(kept.double(), expected.kept.double(), rtol=1e-5, atol=1e-5)
    if "expanded" not in layout and "windows" not in layout:  # equal pixels can be explained in many ways
        exact = contiguous_double(laid_out(layout, torch.float64))
        assert_explained(name, exact, *mix.mixed(exact, torch.Generator().manual_seed(2)))


def assert_explained(name: str, images: Tensor, made: Tensor, permutation: Tensor, kept: Tensor) -> None:
    judge = mixes.MIXES[name]
    for own, other, result, share in zip(images, images[permutation], made, kept.tolist(), strict=True):
        explained = judge(own, other, result)
        assert explained is not None, f"no {name} makes this image"
        assert explained == pytest.approx(share, abs=1e-4)


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
