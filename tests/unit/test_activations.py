"""Activations that the kernels of inference compute together with a normalisation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from timm.layers import BatchNormAct2d
from timm.layers.activations import GELU, GELUTanh
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.parametrize import register_parametrization

from surgeon.layers import native
from surgeon.layers.activations import following
from surgeon.surgery.apply import convert
from tests.helpers import randn, randomise
from tests.reference.norms import example_weighted_reference

pytestmark = pytest.mark.skipif(not native.available(), reason="the kernels were not compiled at installation")

ACTIVATIONS: dict[str, tuple[Callable[[], nn.Module], Callable[[Tensor], Tensor]]] = {
    "none": (nn.Identity, lambda x: x),
    "ReLU": (lambda: nn.ReLU(inplace=True), lambda x: x.clamp(min=0)),
    "ReLU6": (nn.ReLU6, lambda x: x.clamp(0, 6)),
    "SiLU": (nn.SiLU, lambda x: x / (1 + (-x).exp())),
    "Hardswish": (nn.Hardswish, lambda x: x * (x + 3).clamp(0, 6) / 6),
    "LeakyReLU": (lambda: nn.LeakyReLU(0.2), lambda x: torch.where(x > 0, x, 0.2 * x)),
    "GELU": (nn.GELU, lambda x: x / 2 * torch.erfc(-x / 2**0.5)),
    "GELU by tanh": (
        lambda: nn.GELU(approximate="tanh"),
        lambda x: x / 2 * (1 + ((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)).tanh()),
    ),
    "GELU of timm": (GELU, lambda x: x / 2 * torch.erfc(-x / 2**0.5)),
    "GELU by tanh of timm": (
        GELUTanh,
        lambda x: x / 2 * (1 + ((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)).tanh()),
    ),
}
every_activation = pytest.mark.parametrize("name", ACTIVATIONS)
SIDES = (1, 3, 7, 14, 23, 70)
"""Single positions, less than a vector, several vectors and a remainder, more than a block."""


def layer_with(act: nn.Module, channels: int = 20) -> nn.Module:
    layer = randomise(BatchNormAct2d(channels, apply_act=False))
    layer.act = act
    return layer.eval()


@every_activation
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_outputs_are_within_a_millionth_of_the_float64_reference(name: str, memory_format: torch.memory_format) -> None:
    make, reference = ACTIVATIONS[name]
    layer = convert(layer_with(make()), "example-weighted:alpha=0.3")
    for side in SIDES:
        x = (3 * randn(3, 20, side, side, seed=side)).contiguous(memory_format=memory_format)
        with torch.no_grad():
            y, expected = layer(x), reference(example_weighted_reference(x, layer, 0.3))
        assert y.stride() == x.stride()
        error = ((y.double() - expected).abs() / (1 + expected.abs())).max()
        assert error <= 1e-6, f"{name} of {side} x {side} positions is off by {error:.1e}"


@every_activation
def test_the_ends_of_the_numbers_are_those_of_torch_in_float64(name: str) -> None:
    """Far out, at infinity, at zero and for NaN: through a layer that passes what it gets, at alpha 0 of its own."""
    near = [0.0, -0.0, 1e-30, -1e-30, 1e-6, -1e-6, 3.0, -3.0, 6.0, 20.0, -20.0, 86.0, -86.0]
    far = [88.0, -87.5, -88.0, -104.0, 1e4, -1e4, 3e38, -3e38, float("inf"), -float("inf"), float("nan"), -float("nan")]
    numbers = near + far
    x = torch.tensor(numbers).repeat(3).reshape(1, 1, 3, -1)
    unit = torch.ones(1)
    act = ACTIVATIONS[name][0]()
    number = following(layer_with(act))
    assert number is not None
    y = native.example_weighted(x, 0 * unit, unit, None, None, 0 * unit, 0.0, activation=number)
    torch.testing.assert_close(y, act(x.double()).float(), rtol=1e-6, atol=1e-6, equal_nan=True)


def kernel_calls(monkeypatch: pytest.MonkeyPatch) -> list[native.Activation]:
    calls: list[native.Activation] = []
    original = native.example_weighted

    def noted(*args: Any, activation: native.Activation = native.Activation(), **options: Any) -> Tensor | None:  # noqa: B008
        y = original(*args, activation=activation, **options)
        if y is not None:
            calls.append(activation)
        return y

    monkeypatch.setattr(native, "example_weighted", noted)
    return calls


@pytest.mark.parametrize("spec", ["example-weighted:alpha=0.3", "instance-aware:k=2"])
def test_an_activation_is_computed_with_the_normalisation_and_only_once(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = convert(layer_with(nn.SiLU()), spec), randn(2, 20, 5, 5)
    calls = kernel_calls(monkeypatch)
    with torch.no_grad():
        together = layer(x)
        assert calls == [native.Activation(3)]
        handle = layer.act.register_forward_hook(lambda *_: None)  # somebody waits for the activation
        apart = layer(x)
        handle.remove()
    assert calls[1:] == [native.Activation()]
    torch.testing.assert_close(together, apart, rtol=1e-6, atol=1e-6)


WATCHERS: dict[str, Callable[[nn.Module, Callable[..., None]], Any]] = {
    "forward hook": lambda layer, note: layer.act.register_forward_hook(note),
    "forward pre-hook": lambda layer, note: layer.act.register_forward_pre_hook(note),
    "hook of the dropout": lambda layer, note: layer.drop.register_forward_hook(note),
    "hook of all modules": lambda _, note: nn.modules.module.register_module_forward_hook(note),
}


@pytest.mark.parametrize("kind", WATCHERS)
def test_whoever_waits_for_the_activation_is_told(kind: str) -> None:
    seen: list[nn.Module] = []
    layer, x = convert(layer_with(nn.ReLU()), "example-weighted:alpha=0.3"), randn(2, 20, 5, 5)
    handle = WATCHERS[kind](layer, lambda module, *_: seen.append(module))
    try:
        with torch.no_grad():
            layer(x)
    finally:
        handle.remove()
    assert (layer.drop if "dropout" in kind else layer.act) in seen


class Doubled(nn.ReLU):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def doubled_forward() -> nn.Module:
    act = nn.ReLU()
    act.forward = lambda x: 2 * nn.functional.relu(x)  # type: ignore[method-assign]
    return act


@pytest.mark.parametrize("make", [Doubled, doubled_forward, lambda: nn.Sequential(nn.ReLU(), Doubled()), nn.Mish])
def test_what_only_looks_like_an_activation_of_ours_is_called(make: Callable[[], nn.Module]) -> None:
    layer, x = convert(layer_with(make()), "example-weighted:alpha=0.3"), randn(2, 20, 5, 5)
    assert following(layer) is None
    with torch.no_grad():
        y = layer(x)
        expected = layer.act(example_weighted_reference(x, layer, 0.3))
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)


def test_dropout_that_draws_is_not_left_out() -> None:
    layer = convert(layer_with(nn.ReLU()), "example-weighted:alpha=0.3")
    layer.drop = nn.Dropout(0.5).train()
    with torch.no_grad():
        assert (layer(randn(2, 20, 9, 9)) == 0).float().mean() > 0.6


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_number_formats_are_computed_by_torch(dtype: torch.dtype) -> None:
    layer = convert(layer_with(nn.SiLU()), "example-weighted:alpha=0.3").to(dtype)
    x = randn(2, 20, 5, 5).to(dtype)
    with torch.no_grad():
        expected = ACTIVATIONS["SiLU"][1](example_weighted_reference(x, layer, 0.3))
    near = 1e-5 if dtype is torch.float64 else 0.05
    with torch.no_grad():
        assert layer(x).dtype == dtype
        torch.testing.assert_close(layer(x).double(), expected, rtol=near, atol=near)


def test_gradients_go_through_torch() -> None:
    layer = convert(layer_with(nn.SiLU()), "example-weighted:alpha=0.3")
    x = randn(2, 20, 5, 5).requires_grad_()
    twin = x.detach().double().requires_grad_()
    layer(x).square().sum().backward()
    ACTIVATIONS["SiLU"][1](example_weighted_reference(twin, layer, 0.3)).square().sum().backward()
    torch.testing.assert_close(x.grad.double(), twin.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("change", ["parametrized", "pruned", "another weight", "another alpha"])
def test_tensors_are_those_of_the_moment(change: str) -> None:
    layer, x = convert(layer_with(nn.ReLU()), "example-weighted:alpha=0.3"), randn(2, 20, 5, 5)
    alpha = 0.3
    with torch.no_grad():
        layer(x)
        if change == "parametrized":
            register_parametrization(layer, "weight", Negated())
        elif change == "pruned":
            prune.l1_unstructured(layer, "weight", 10)
        elif change == "another weight":
            layer.weight.data = randn(20, seed=5)
        else:
            layer.set_alpha(alpha := 0.8)
        expected = example_weighted_reference(x, layer, alpha).clamp(min=0)
        torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=1e-5)


class Negated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return -x


@pytest.mark.parametrize("recording", [True, False])
def test_a_layer_with_an_activation_compiles(recording: bool) -> None:
    layer = convert(layer_with(nn.ReLU()), "example-weighted:alpha=0.3").requires_grad_(recording)
    x = randn(2, 20, 5, 5)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with nullcontext() if recording else torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 19, 5, 5), (2, 20, 5), (20, 5, 5)])
def test_inputs_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    layer = convert(layer_with(nn.ReLU()), "example-weighted:alpha=0.3")
    with torch.no_grad(), pytest.raises((RuntimeError, ValueError), match=r"channels|4D"):
        layer(randn(*shape))
