"""SelfNorm's training kernel: near float64, what it leaves to others, and what it keeps of a batch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from surgeon.inserts.selfnorm import layer as module
from surgeon.inserts.selfnorm.layer import Form, SelfNorm
from surgeon.layers import native
from tests.helpers import randn

SHAPES = [(7, 5, 7, 3), (6, 33, 9, 9), (8, 3, 71, 69), (9, 2, 130), (6, 6, 3, 4, 5), (17, 40, 1, 2)]
needs_kernel = pytest.mark.skipif(not native.available(), reason="the kernels were not compiled at installation")


def unit(channels: int, two_sided: bool, form: Form = "residual", momentum: float | None = 0.1) -> SelfNorm:
    made = SelfNorm(channels, two_sided, form)
    for number, p in enumerate(made.parameters()):
        p.data.copy_(randn(*p.shape, seed=number + 5))
    for m in made.modules():
        if isinstance(m, torch.nn.BatchNorm1d):
            m.momentum = momentum
    return made


def run(layer: SelfNorm, x: Tensor, upstream: Tensor) -> list[Tensor]:
    """Output, gradients of input and parameters, and running statistics, after two batches."""
    with torch.no_grad():
        layer(x / 2)
    x = x.detach().requires_grad_()
    y = layer(x)
    gradients = torch.autograd.grad(y, (x, *layer.parameters()), upstream)
    return [y.detach(), *gradients, *(t for t in layer.buffers())]


@needs_kernel
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("form", ["residual", "published"])
@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_gradients_and_statistics_are_near_those_of_float64(
    shape: tuple[int, ...],
    two_sided: bool,
    form: Form,
    momentum: float | None,
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer, upstream = unit(shape[1], two_sided, form, momentum), randn(*shape, seed=1)
    styles = randn(*shape[:2], *[1] * (len(shape) - 2), seed=2)  # alike, they would have gradients of rounding errors
    x = 3 + styles + randn(*shape) * styles.exp()
    exact = copy.deepcopy(layer).double()
    expected = run(exact, x.double(), upstream.double())
    monkeypatch.setattr(module, "scale_by_moments", lambda *_: pytest.fail("this is the kernel's"))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ours = run(layer, x, upstream)
    finally:
        torch.set_num_threads(before)
    for own, reference in zip(ours, expected, strict=True):
        error = (own.double() - reference).abs().max() / reference.abs().max().clamp(min=1)
        assert error < 1e-5


@needs_kernel
@pytest.mark.parametrize("two_sided", [False, True])
def test_second_derivatives(two_sided: bool) -> None:
    results = []
    for dtype in (torch.float32, torch.float64):
        layer, x = unit(3, two_sided).to(dtype), randn(4, 3, 5, 5).to(dtype).requires_grad_()
        first = torch.autograd.grad(layer(x).square().sum(), (x, *layer.parameters()), create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in first), (x, *layer.parameters())))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-3, atol=1e-3)


@needs_kernel
def test_nan_stays_in_its_channel() -> None:
    layer, x = unit(3, two_sided=False), randn(4, 3, 5, 5)
    x[1, 1, 2, 2] = float("nan")
    y = layer(x.requires_grad_())
    assert y[:, 1].isnan().all()
    assert y[:, ::2].isfinite().all()


@needs_kernel
def test_autograd_notices_that_running_statistics_have_moved() -> None:
    layer, x = unit(3, two_sided=False), randn(4, 3, 5, 5).requires_grad_()
    norm = layer.g_bn
    before = norm.running_mean._version, norm.running_var._version
    layer(x)
    assert norm.running_mean._version > before[0]
    assert norm.running_var._version > before[1]


@needs_kernel
def test_one_example_is_refused_as_by_torch() -> None:
    layer = unit(3, two_sided=False)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        layer(randn(1, 3, 5, 5).requires_grad_())
