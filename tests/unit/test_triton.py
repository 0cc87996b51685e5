"""Triton's kernels against the formulas in float64: on a GPU if there is one, else by Triton's interpreter."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from surgeon.layers import kernels, statistics, triton
from surgeon.layers.activations import following
from surgeon.layers.native import Noise
from surgeon.surgery.apply import convert
from tests.contract.layouts import LAYOUTS
from tests.helpers import randn, randomise
from tests.reference.norms import example_weighted, instance_aware
from tests.unit.test_activations import ACTIVATIONS, layer_with
from tests.unit.test_statistics import normalised_in_groups

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings(
    "ignore:(overflow|invalid value) encountered:RuntimeWarning"
)  # of the interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF_UNIT = {torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-7}  # the interpreter truncates
EXACT = 2e-6
"""Of float32, beside the rounding of what a half-precision output can hold."""
SHAPES: dict[str, Callable[[Callable[..., Tensor]], Tensor]] = LAYOUTS | {
    "one value": lambda n: n(1, 1, 1, 1),
    "one channel": lambda n: n(3, 1, 5, 3),
    "one channel, channels-last": lambda n: n(3, 5, 7, 1).permute(0, 3, 1, 2),
    "one position": lambda n: n(5, 19, 1, 1),
    "rows": lambda n: n(5, 70),
    "sequence": lambda n: n(3, 5, 37),
    "volume": lambda n: n(4, 3, 3, 2, 5),
    "many channels, channels-last": lambda n: n(2, 3, 1, 100).permute(0, 3, 1, 2),
}


@pytest.fixture(scope="module", autouse=True)
def triton_is_asked() -> Iterator[None]:
    """For every tensor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "on_gpu", lambda _: True)
        yield


@pytest.fixture(autouse=True)
def failures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Those that a test expects, it takes away."""
    found: list[str] = []
    monkeypatch.setattr(triton, "_failures", found)
    yield found
    assert not found


@pytest.fixture
def kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to torch."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed by torch")

    for name in ("example_weighted", "_by_torch", "_forward_by_group", "_forward_by_torch", "_backward_by_group"):
        monkeypatch.setattr(statistics, name, refuse)


def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into tiles of few values, so that small features have many, and several chunks."""
    from surgeon.layers.triton import tiles

    monkeypatch.setattr(tiles, "TILE", 128)
    monkeypatch.setattr(tiles, "MOST_VALUES", 16)


def features(shape: str, dtype: torch.dtype, offset: float = 0.0) -> Tensor:
    return SHAPES[shape](lambda *sizes: (offset + 1.7 * randn(*sizes)).to(DEVICE, dtype))


def per_channel(channels: int, seed: int, low: float, high: float) -> Tensor:
    return (torch.rand(channels, generator=torch.Generator().manual_seed(seed)) * (high - low) + low).to(DEVICE)


def drawn(axes: dict[str, list[Any]], times: int) -> pytest.MarkDecorator:
    """Cases in which each value of the first axis meets values of the others, drawn as always so many times."""
    first, *others = axes.values()
    random = Random(times)
    cases = [(value, *(random.choice(axis) for axis in others)) for value in first for _ in range(times)]
    return pytest.mark.parametrize("case", cases, ids=["-".join(map(str, case)) for case in cases])


# ---- evaluation ----

EVALUATION = {
    "shape": list(SHAPES),
    "dtype": list(HALF_UNIT),
    "act": list(ACTIVATIONS),
    "noisy": [False, True],
    "affine": ["both", "weight", "none"],
    "offset": [0.0, 1e4],
    "tiles": ["whole", "chunks"],
}


def check_evaluation(
    shape: str, dtype: torch.dtype, act: str, noisy: bool, affine: str, offset: float, tiles: str
) -> None:
    offset, noise = offset if dtype is torch.float32 else 0.0, Noise(2.0, 0.7) if noisy else None
    x = features(shape, dtype, offset)
    channels = x.shape[1]
    mean, var = offset + per_channel(channels, 1, -1, 1), per_channel(channels, 2, 0.5, 2)
    weight = per_channel(channels, 3, 0.5, 1.5) if affine != "none" else None
    bias = per_channel(channels, 4, -1, 1) if affine == "both" else None
    alpha = torch.linspace(0.1, 0.9, channels, device=DEVICE)
    activation = following(layer_with(ACTIVATIONS[act][0]()))
    assert activation is not None
    y = triton.example_weighted(x, mean, var, weight, bias, alpha, 1e-5, noise=noise, activation=activation)
    assert y is not None, triton.failure()
    assert y.dtype == dtype
    layer = SimpleNamespace(
        running_mean=mean.double(),
        running_var=var.double(),
        weight=torch.ones_like(mean).double() if weight is None else weight.double(),
        bias=torch.zeros_like(mean).double() if bias is None else bias.double(),
        alpha=alpha,
        epsilon=1e-5,
        rewrites={"instance-aware": SimpleNamespace(k=noise.errors, weight=noise.share)} if noise else {},
    )
    normalised = (instance_aware if noise else example_weighted)(layer, x.double())
    expected = ACTIVATIONS[act][1](normalised)
    allowed = (EXACT + HALF_UNIT[dtype]) * (1 + expected.abs())
    if tiles == "chunks":  # what is subtracted has been rounded to float32
        allowed = allowed + HALF_UNIT[torch.float32] * 16 * offset
    excess = ((y.double() - expected).abs() / allowed).max()
    assert excess <= 1, f"{excess:.1f} times further off than rounding explains"


@drawn(EVALUATION, times=1)
def test_evaluation_equals_the_formula(case: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if case[-1] == "chunks":
        cut_small(monkeypatch)
    check_evaluation(*case)


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_the_ends_of_the_numbers_are_those_of_torch_in_float64(act: str) -> None:
    near = [0.0, -0.0, 1e-30, -1e-30, 1e-6, -1e-6, 3.0, -3.0, 6.0, 20.0, -20.0, 86.0, -86.0]
    far = [88.0, -87.5, -88.0, -104.0, 1e4, -1e4, 3e38, -3e38, float("inf"), -float("inf"), float("nan"), -float("nan")]
    x = torch.tensor(near + far, device=DEVICE).reshape(1, 1, 5, -1)
    unit, act_layer = torch.ones(1, device=DEVICE), ACTIVATIONS[act][0]()
    activation = following(layer_with(act_layer))
    assert activation is not None
    y = triton.example_weighted(x, 0 * unit, unit, None, None, 0 * unit, 0.0, activation=activation)
    assert y is not None
    torch.testing.assert_close(y, act_layer(x.double()).float(), rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.usefixtures("kernels_alone")
@pytest.mark.parametrize("spec", ["example-weighted:alpha=0.3", "instance-aware:k=2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_layer_evaluates_by_the_kernels(spec: str, dtype: torch.dtype) -> None:
    """With its activation in the same launch or, where somebody waits for it, after; whatever its own dtype is."""
    layer = convert(layer_with(nn.SiLU()), spec).to(DEVICE)
    x = randn(2, 20, 5, 5).to(DEVICE, dtype)
    reference = instance_aware if spec.startswith("instance") else example_weighted
    expected = nn.functional.silu(reference(copy.deepcopy(layer).double(), x.double()))
    with torch.no_grad():
        results = [layer(x)]
        layer.act.register_forward_hook(lambda *_: None)
        results += [layer(x), layer.to(dtype)(x)]
    for y, near in zip(results, (1, 3, 8), strict=True):  # half-precision parameters are rounded as well
        assert y.dtype == dtype
        allowed = near * (EXACT + HALF_UNIT[dtype])
        torch.testing.assert_close(y.double(), expected, rtol=allowed, atol=allowed)


# ---- training ----

TRAINING = {
    "shape": [name for name in SHAPES if name != "one value"],
    "dtype": list(HALF_UNIT),
    "size": [2, 3, 9],
    "shared": [1, 3],
    "affine": ["both", "weight", "none"],
    "offset": [0.0, 5.0],
    "upstream": ["contiguous", "channels-last", "sum"],
    "tiles": ["whole", "chunks"],
}


def check_training(
    shape: str, dtype: torch.dtype, size: int, shared: int, affine: str, offset: float, upstream: str
) -> None:
    x = features(shape, dtype, offset).requires_grad_()
    channels = x.shape[1]
    channel_groups = channels // shared if channels % shared == 0 else channels
    bounds = statistics.group_bounds(len(x), size, x[0, 0].numel() * channels // channel_groups)
    weight = (0.5 + per_channel(channels, 3, 0, 1)).requires_grad_() if affine != "none" else None
    bias = per_channel(channels, 4, -1, 1).requires_grad_() if affine == "both" else None
    grad = randn(*x.shape, seed=7).to(DEVICE, dtype)
    if upstream == "channels-last":
        grad = grad.movedim(1, -1).contiguous().movedim(-1, 1)
    elif upstream == "sum":  # stride 0 everywhere
        grad = grad.reshape(-1)[0].expand(x.shape)
    y, groups = statistics.normalise_groups(x, weight, bias, bounds, 1e-5, channel_groups)
    assert y.dtype == dtype
    leaves = [t for t in (x, weight, bias) if t is not None]
    ours = [y, *torch.autograd.grad(y, leaves, grad)]

    x64, *affine64 = (
        None if t is None else t.detach().double().contiguous().requires_grad_() for t in (x, weight, bias)
    )
    neutral = torch.ones(channels, device=DEVICE), torch.zeros(channels, device=DEVICE)
    given = [other if t is None else t for t, other in zip(affine64, neutral, strict=True)]
    y64 = normalised_in_groups(x64, *given, bounds, channel_groups)
    leaves64 = [t for t in (x64, *affine64) if t is not None]
    theirs = [y64, *torch.autograd.grad(y64, leaves64, grad.double())]
    for name, value, truth in zip(("y", "x", "weight", "bias"), ours, theirs, strict=False):
        error = ((value.double() - truth).abs() / (1 + truth.abs().max())).max()
        near = 1e-5 + (HALF_UNIT[dtype] if name in "yx" else 0)
        assert error <= near, f"{name} is off by {error:.1e}"
    for group, (start, stop) in enumerate(bounds):
        dims = [d for d in range(x.dim()) if d != 1]
        var, mean = torch.var_mean(x64[start:stop].detach(), dim=dims, correction=0)
        torch.testing.assert_close(groups.mean[group].double(), mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(groups.var[group].double(), var, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("kernels_alone")
@drawn(TRAINING, times=1)
def test_training_equals_the_formula(case: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if case[-1] == "chunks":
        cut_small(monkeypatch)
    check_training(*case[:-1])


class Formulas(TorchFunctionMode):
    """Lets every function pass; where it is active, no kernel is."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("spec", ["ghost:size=3", "ghost:size=3,running=groups", "batch-group:channel_groups=3"])
def test_running_statistics_are_those_of_the_formulas(spec: str, momentum: float | None) -> None:
    layer = randomise(nn.BatchNorm2d(6, momentum=momentum)).to(DEVICE)
    ours, theirs = (convert(copy.deepcopy(layer), spec).train() for _ in range(2))
    for step in range(2):
        x = 40 + randn(8, 6, 4, 3, seed=step).to(DEVICE)
        y = ours(x)
        with Formulas():
            torch.testing.assert_close(y, theirs(x), rtol=1e-5, atol=1e-4)
    assert ours.num_batches_tracked == 2
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=2e-6, atol=2e-6)


def test_running_statistics_of_many_groups() -> None:
    """More than a program joins at a time, and the last one smaller; of half-precision running moments, too."""
    mean, var = 30 + randn(75, 70).to(DEVICE), randn(75, 70, seed=1).square().to(DEVICE)
    bounds = statistics.group_bounds(149, 2, 5)
    sizes = torch.tensor([stop - start for start, stop in bounds], device=DEVICE)
    groups = statistics.pool(statistics.Statistics(mean.double(), var.double()), sizes)
    for dtype in (torch.float32, torch.float16):
        running = statistics.Statistics(29 + randn(70, seed=2).to(DEVICE, dtype), 1 + 0 * randn(70).to(DEVICE, dtype))
        updated = triton.updated_running(mean, var, bounds, *running, 0.1)
        expected = statistics.mix(statistics.Statistics(*(t.double() for t in running)), groups, 0.1)
        torch.testing.assert_close(updated.double(), torch.stack(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("spec", ["ghost:size=3", "batch-group:channel_groups=3,examples_per_group=2"])
def test_second_derivatives_are_those_of_the_formulas(spec: str) -> None:
    layer, found = randomise(nn.BatchNorm1d(6)).to(DEVICE), []
    for double in (False, True):
        converted, x = convert(copy.deepcopy(layer), spec).train(), randn(7, 6, 4).to(DEVICE)
        if double:
            converted, x = converted.double(), x.double()  # which no kernel takes
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(converted(x).sin().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        assert converted.num_batches_tracked == 1
        found.append([t.double() for t in (x.grad, converted.weight.grad, converted.bias.grad)])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_only_the_wanted_gradients_are_returned() -> None:
    weight, bias = torch.ones(3, requires_grad=True, device=DEVICE), torch.zeros(3, device=DEVICE)
    x = randn(4, 3, 5).to(DEVICE)
    y, _ = statistics.normalise_groups(x, weight, bias, [(0, 2), (2, 4)], 1e-5)
    (y * x).sum().backward()
    assert weight.grad is not None
    assert bias.grad is None


# ---- where the kernels do not apply ----


def arguments(x: Tensor, dtype: torch.dtype = torch.float32) -> list[Tensor | float]:
    ones = torch.ones(x.shape[1], device=DEVICE, dtype=dtype)
    return [x, 0 * ones, ones, ones, ones, 0.5 * ones, 1e-5]


def test_kernels_step_aside() -> None:
    x = randn(4, 6, 3, 3).to(DEVICE)
    assert triton.example_weighted(*arguments(x)) is not None
    assert triton.example_weighted(*arguments(x.double())) is None
    assert triton.example_weighted(*arguments(x, torch.float64)) is None
    assert triton.example_weighted(*arguments(x.clone().requires_grad_())) is None
    with torch.no_grad():
        assert triton.example_weighted(*arguments(x.clone().requires_grad_())) is not None
    for sizes in ((0, 6, 3, 3), (2, 0, 3, 3), (2, 6, 0, 3)):
        assert triton.example_weighted(*arguments(torch.empty(sizes, device=DEVICE))) is None
    strided = arguments(x)
    strided[1] = torch.zeros(12, device=DEVICE)[::2]
    assert triton.example_weighted(*strided) is None
    with Formulas():
        assert triton.example_weighted(*arguments(x)) is None
    assert triton.example_weighted(*arguments(torch._neg_view(x))) is None
    for bounds in ([(0, 1), (1, 4)], [(0, 1), (1, 3), (3, 4)], [(0, 2), (3, 4)]):
        regular = bounds == [(0, 1), (1, 4)]  # the last group may have any size
        assert (triton.ghost_forward(x, None, None, bounds, 1e-5) is not None) == regular
    assert not triton.takes_groups(x[..., ::2], None, None)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("sizes", [(0, 6, 3, 3), (2, 6, 0, 3)])
def test_empty_batches_are_as_before(training: bool, sizes: tuple[int, ...]) -> None:
    layer = randomise(nn.BatchNorm2d(6)).to(DEVICE)
    converted = convert(layer, "ghost:size=2", "example-weighted:alpha=0.3").train(training)
    assert converted(torch.empty(sizes, device=DEVICE)).shape == sizes


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("spec", ["example-weighted:alpha=0.3", "instance-aware:k=2", "ghost:size=3"])
def test_layers_compile(spec: str, training: bool) -> None:
    """Whole, by torch's operations: the compiler makes kernels of its own."""
    torch.compiler.reset()
    layer = convert(layer_with(nn.SiLU(), 6), spec).to(DEVICE).train(training)
    plain, x = copy.deepcopy(layer), randn(7, 6, 4, 3).to(DEVICE)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for module in (compiled, plain):
        leaf = x.clone().requires_grad_()
        y = module(leaf)
        y.square().sum().backward()
        if module is compiled:
            expected, gradient = y, leaf.grad
    torch.testing.assert_close(expected, y, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, leaf.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(plain.state_dict(), layer.state_dict(), rtol=1e-5, atol=1e-5)


# ---- where Triton fails ----


def broken(*_: object, **__: object) -> None:
    raise RuntimeError("Failed to find C compiler.")


def trained(spec: str) -> list[Tensor]:
    layer = convert(randomise(nn.BatchNorm2d(6)).to(DEVICE), spec).train()
    x = randn(7, 6, 4, 3).to(DEVICE).requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, layer.weight.grad, layer.running_mean, layer.running_var]


@pytest.mark.parametrize("part", ["ghost", "gradients", "running"])
@pytest.mark.parametrize("spec", ["ghost:size=3", "batch-group:channel_groups=3,examples_per_group=3"])
def test_training_goes_on_without_triton(
    spec: str, part: str, monkeypatch: pytest.MonkeyPatch, failures: list[str]
) -> None:
    expected = trained(spec)
    monkeypatch.setattr(f"surgeon.layers.triton.{part}.launch", broken)
    torch.testing.assert_close(trained(spec), expected, rtol=1e-5, atol=1e-5)
    assert triton.failure() == "RuntimeError: Failed to find C compiler."
    monkeypatch.undo()
    failures.clear()


def test_evaluation_goes_on_without_triton(monkeypatch: pytest.MonkeyPatch, failures: list[str]) -> None:
    layer = convert(layer_with(nn.SiLU()), "example-weighted:alpha=0.3").to(DEVICE)
    x = randn(2, 20, 5, 5).to(DEVICE)
    with torch.no_grad():
        expected = layer(x)
        with monkeypatch.context() as patch:
            for name in [name for name in sys.modules if name.startswith("surgeon.layers.triton.")]:
                patch.delitem(sys.modules, name)
            patch.setitem(sys.modules, "triton", None)  # not installed
            torch.testing.assert_close(layer(x), expected, rtol=1e-6, atol=1e-6)
        assert "triton" in triton.failure()
        monkeypatch.setattr("surgeon.layers.triton.weighting.launch", lambda *_, **__: pytest.fail("tried again"))
        torch.testing.assert_close(layer(x), expected, rtol=1e-6, atol=1e-6)
    failures.clear()


def test_a_lack_of_memory_is_no_failure_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    x = randn(2, 3, 4, 4).to(DEVICE)
    assert triton.example_weighted(*arguments(x)) is not None
    monkeypatch.setattr("surgeon.layers.triton.weighting.launch", full)
    with pytest.raises(torch.OutOfMemoryError):
        triton.example_weighted(*arguments(x))


# ---- large features ----


@pytest.mark.parametrize("shape", ["contiguous", "channels-last"])
def test_addresses_of_64_bits_give_the_same(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from surgeon.layers.triton import tiles

    x, bounds = features(shape, torch.float32), [(0, 4), (4, 7)]

    def everything() -> list[Tensor]:
        weighted = triton.example_weighted(*arguments(x))
        with monkeypatch.context() as patch:
            cut_small(patch)
            groups = triton.ghost_forward(x, None, None, bounds, 1e-5, 2)
            gradients = triton.ghost_backward(x, x, None, bounds, groups.centre, groups.inverse)
            return [weighted, triton.example_weighted(*arguments(x)), *groups, *gradients]

    expected = everything()
    monkeypatch.setattr(tiles, "LARGE", 0)
    assert all(torch.equal(*pair) for pair in zip(everything(), expected, strict=True))


# ---- more ----


@pytest.mark.long
@drawn(EVALUATION, times=12)
def test_evaluation_in_more_cases(case: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    test_evaluation_equals_the_formula(case, monkeypatch)


@pytest.mark.long
@pytest.mark.usefixtures("kernels_alone")
@drawn(TRAINING, times=12)
def test_training_in_more_cases(case: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    test_training_equals_the_formula(case, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(1, 3, 181, 182), (3, 70, 40, 41), (2, 2, 130, 129)])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("dtype", HALF_UNIT)
def test_features_of_real_sizes(
    sizes: tuple[int, ...], columns: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut as on a GPU: one program per example, or chunks."""

    def large(numbers: Callable[..., Tensor]) -> Tensor:
        x = numbers(*sizes)
        return x.contiguous(memory_format=torch.channels_last) if columns else x

    monkeypatch.setitem(SHAPES, "large", large)
    check_evaluation("large", dtype, "GELU", False, "both", 0.0, "whole")
    check_training("large", dtype, 2, 1, "both", 0.0, "contiguous")
