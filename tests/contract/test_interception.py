"""Whatever records, replaces or defers torch's operations gets torch's operations: no kernel runs behind its back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from surgeon.augment.base import Kind, augments
from surgeon.inserts.selfnorm.layer import SelfNorm
from surgeon.layers import native
from surgeon.surgery.apply import convert
from tests.contract.test_norm_contract import CHANNELS, EVERY, Specs, every_rewrite, make
from tests.helpers import randn, randomise
from tests.pairs import in_pairs

both_modes = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
with_and_without_gradients = pytest.mark.parametrize("recording", [True, False], ids=["gradients", "none"])


class Dispatched(TorchDispatchMode):
    """Notes the operations that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class Called(TorchFunctionMode):
    """Notes the functions that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def negative_view(x: Tensor) -> Tensor:
    return torch._neg_view(-x)


def imaginary_part_of_a_conjugate(x: Tensor) -> Tensor:
    return torch.complex(torch.zeros_like(x), -x).conj().imag


LAZY: dict[str, Callable[[Tensor], Tensor]] = {
    "negative view": negative_view,
    "imaginary part of a conjugate": imaginary_part_of_a_conjugate,
    "zero tensor": lambda x: torch._efficientzerotensor(x.shape),
}
PATHS = ["training", "training with gradients", "evaluation", "evaluation with gradients"]
every_lazy_tensor = pytest.mark.parametrize("lazy", LAZY)


def eager(x: Tensor) -> Tensor:
    return torch.zeros_like(x) if torch._is_zerotensor(x) else x.resolve_neg().clone()


@pytest.mark.skipif(not native.available(), reason="the kernels were not compiled at installation")
def test_what_is_ordinary() -> None:
    x = randn(2, 4, 3, 3)
    assert native.ordinary(x, nn.Parameter(x), None)
    assert not native.being_watched()
    with torch.device("cpu"):  # a mode that concerns new tensors only
        assert not native.being_watched()
    for context in (Dispatched(), Called(), FakeTensorMode(), FlopCounterMode(display=False)):
        with context:
            assert native.being_watched(), context
    assert not any(native.ordinary(make(x)) for make in LAZY.values())
    assert not native.ordinary(x.to_sparse())
    assert not native.ordinary(x.as_subclass(type("Subclass", (Tensor,), {})))


# ---- layers ----


def test_make_fx_records_what_a_layer_computes() -> None:
    layer, x = make()
    converted = convert(layer, "example-weighted:alpha=0.3")
    with torch.no_grad():
        graph = make_fx(converted)(x)
        other = randn(*x.shape, seed=8)
        torch.testing.assert_close(graph(other), converted(other))
    assert sum(node.op == "call_function" for node in graph.graph.nodes) > 3


@in_pairs(specs=EVERY, tracing=["real", "fake", "symbolic"], pre_dispatch=[False, True])
def test_a_graph_of_evaluation_computes_the_same(specs: Specs, tracing: str, pre_dispatch: bool) -> None:
    layer, x = make()
    converted = convert(layer, *specs)
    with torch.no_grad():
        trace = make_fx(converted, tracing_mode=tracing, pre_dispatch=pre_dispatch, _allow_non_fake_inputs=True)
        other = randn(*x.shape, seed=8)
        torch.testing.assert_close(trace(x)(other), converted(other), rtol=1e-5, atol=1e-5)


@both_modes
@with_and_without_gradients
@every_rewrite
def test_a_layer_computes_the_same_under_every_mode(specs: Specs, recording: bool, training: bool) -> None:
    layer, x = make()
    results = []
    for context in (nullcontext(), Dispatched(), Called(), FlopCounterMode(display=False)):
        converted = convert(layer, *specs).train(training)
        with torch.set_grad_enabled(recording), context:
            results.append((converted(x).detach(), dict(converted.state_dict())))
    for y, state in results[1:]:
        torch.testing.assert_close(y, results[0][0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(state, results[0][1], rtol=1e-5, atol=1e-5)


@both_modes
@every_rewrite
def test_fake_tensors_stay_fake(specs: Specs, training: bool) -> None:
    layer, x = make()
    converted = convert(layer, *specs).train(training)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        y = converted(mode.from_tensor(x))
    assert type(y).__name__ == "FakeTensor"
    assert y.shape == x.shape


@in_pairs(
    specs=EVERY,
    path=["training", "training with gradients", "evaluation", "evaluation with gradients"],
    lazy=list(LAZY),
)
def test_layers_take_lazy_tensors(specs: Specs, path: str, lazy: str) -> None:
    training, recording = path.startswith("training"), path.endswith("gradients")
    layer, x = make()
    x = LAZY[lazy](x)
    ours, expected = (convert(layer, *specs).train(training) for _ in range(2))
    with torch.set_grad_enabled(recording):
        torch.testing.assert_close(ours(x), expected(eager(x)), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.state_dict(), expected.state_dict(), rtol=1e-5, atol=1e-5)


@in_pairs(specs=EVERY, training=[True, False], lazy=list(LAZY))
def test_layers_take_lazy_gradients(specs: Specs, training: bool, lazy: str) -> None:
    layer, x = make()
    upstream = LAZY[lazy](randn(*x.shape, seed=4))
    results = []
    for grad in (upstream, eager(upstream)):
        converted = convert(layer, *specs).train(training)
        features = x.clone().requires_grad_()
        wanted = [
            features,
            *(p for name, p in converted.named_parameters() if "aux" not in name and "gate" not in name),
        ]
        results.append(torch.autograd.grad(converted(features), wanted, grad))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


@both_modes
@every_rewrite
def test_parameters_in_odd_places(specs: Specs, training: bool) -> None:
    """Slices of a larger tensor, and lazy ones."""
    layer, x = make()
    expected = convert(layer, *specs).train(training)
    state = {name: p.detach() for name, p in expected.named_parameters()}
    for change in (lambda t: torch.stack([t, t], -1)[..., 0], negative_view):
        ours = convert(layer, *specs).train(training)
        odd = {name: change(value) for name, value in state.items()}
        with torch.no_grad():
            y = torch.func.functional_call(ours, odd, (x,))
            torch.testing.assert_close(y, copy.deepcopy(expected)(x), rtol=1e-5, atol=1e-5)


@both_modes
@every_rewrite
def test_second_derivatives_are_right(specs: Specs, training: bool) -> None:
    """Derivatives by hand are constants to autograd, which would drop out of a second derivative in silence."""
    layer, _ = make("1d-sequence")
    converted = convert(layer.double(), *specs).train(training)
    names = [name for name, _ in converted.named_parameters() if not name.startswith("aux.")]
    state = copy.deepcopy(converted.state_dict())

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(converted, dict(zip(names, parameters, strict=True)), (x,))

    x = randn(4, CHANNELS, 2, dtype=torch.float64).requires_grad_()
    parameters = [converted.get_parameter(name).detach().clone().requires_grad_() for name in names]
    assert torch.autograd.gradgradcheck(run, (x, *parameters))
    # A step with a penalty on gradients counts as one step.
    converted.load_state_dict(state)
    once = copy.deepcopy(converted)
    once(x)
    (gradient,) = torch.autograd.grad(converted(x).sin().sum(), x, create_graph=True)
    gradient.square().sum().backward()
    torch.testing.assert_close(converted.state_dict(), once.state_dict())


# ---- inserts ----


def selfnorm() -> SelfNorm:
    torch.manual_seed(0)
    unit = SelfNorm(CHANNELS, two_sided=True)
    randomise(unit)
    return unit


@both_modes
def test_second_derivatives_of_selfnorm(training: bool) -> None:
    unit = selfnorm().double().train(training)
    names = list(dict(unit.named_parameters()))

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(unit, dict(zip(names, parameters, strict=True)), (x,))

    x = randn(4, CHANNELS, 3, dtype=torch.float64).requires_grad_()
    parameters = [p.detach().clone().requires_grad_() for p in unit.parameters()]
    assert torch.autograd.gradgradcheck(run, (x, *parameters))
    once = copy.deepcopy(unit)
    once(x)
    before = copy.deepcopy(unit)
    (gradient,) = torch.autograd.grad(before(x).sum(), x, create_graph=True)
    gradient.square().sum().backward()
    torch.testing.assert_close(before.state_dict(), once.state_dict())


@every_lazy_tensor
@both_modes
@with_and_without_gradients
def test_selfnorm_takes_lazy_tensors_and_modes(recording: bool, training: bool, lazy: str) -> None:
    x = LAZY[lazy](randn(4, CHANNELS, 3, 5))
    with torch.set_grad_enabled(recording):
        expected = selfnorm().train(training)(eager(x))
        torch.testing.assert_close(selfnorm().train(training)(x), expected, rtol=1e-5, atol=1e-5)
        with Dispatched():
            torch.testing.assert_close(selfnorm().train(training)(eager(x)), expected, rtol=1e-5, atol=1e-5)


# ---- mixes ----

MIXES = [name for name in augments if augments[name].kind is Kind.MIX]


def contexts() -> Iterator[AbstractContextManager[Any]]:
    yield from (Dispatched(), Called(), FlopCounterMode(display=False))


@pytest.mark.parametrize("name", MIXES)
def test_mixes_under_modes_and_of_lazy_images(name: str) -> None:
    augment = augments[name]
    mix = augment.build(augment.configure({}), None)
    images = randn(5, 3, 6, 8)
    expected = mix.mixed(images, torch.Generator().manual_seed(1))
    for context in contexts():
        with context:
            torch.testing.assert_close(mix.mixed(images, torch.Generator().manual_seed(1)), expected)
    for lazy in LAZY.values():
        given = lazy(images)
        made = mix.mixed(given, torch.Generator().manual_seed(1))
        torch.testing.assert_close(made, mix.mixed(eager(given), torch.Generator().manual_seed(1)))
