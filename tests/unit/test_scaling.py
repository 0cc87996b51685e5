"""Features scaled by their own moments: near float64, in every layout and over either dimension, kernel or not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from surgeon.layers import native
from surgeon.layers.native import scaling as kernels
from surgeon.layers.native.scaling import Over
from surgeon.layers.scaling import scale_by_moments
from tests.helpers import randn

SHAPES = [(3, 5, 7, 3), (2, 33, 9, 9), (4, 2, 130), (2, 6, 3, 4, 5), (1, 600, 3, 2), (2, 3, 71, 69), (3, 16, 1, 1)]


def rule(mean: Tensor, var: Tensor, bend: Tensor, **_: bool) -> list[Tensor]:
    scale = (bend * var - mean / 4).sigmoid()
    return [scale, mean * scale.square()]


def by_autograd(x: Tensor, over: Over, bend: Tensor) -> Tensor:
    dims = (1,) if over == "channels" else tuple(range(2, x.dim()))
    var, mean = torch.var_mean(x, dims, keepdim=True)
    scale, shift = rule(mean, var, bend)
    return x * scale + shift


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("over", ["channels", "positions"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels-last"])
@pytest.mark.parametrize("threads", [1, 2])
def test_values_and_gradients_are_near_those_of_float64(
    compiled: bool, over: Over, shape: tuple[int, ...], last: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled and not native.available():
        pytest.skip("the kernels were not compiled at installation")
    if over == "positions" and shape[2:].count(1) == len(shape[2:]):
        pytest.skip("one position has no variance")
    if not compiled:
        monkeypatch.setattr(native.scaling, "_library", lambda: None)
    x = 3 + randn(*shape)
    x = x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x
    upstream = randn(*shape, seed=1)  # of another layout than channels-last features
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert (kernels.moments(x, over) is not None) == (compiled and (not last or x.dim() > 3))
        results = []
        for dtype, compute in (
            (torch.float64, by_autograd),
            (torch.float32, lambda x, over, bend: scale_by_moments(x, over, rule, bend)),
        ):
            own = x.detach().to(dtype).clone(memory_format=torch.preserve_format).requires_grad_()
            bend = torch.tensor(0.3, dtype=dtype, requires_grad=True)
            y = compute(own, over, bend)
            results.append([y.detach(), *torch.autograd.grad(y, (own, bend), upstream.to(dtype))])
    finally:
        torch.set_num_threads(before)
    for expected, ours in zip(*results, strict=True):
        error = (ours.double() - expected).abs().max() / expected.abs().max().clamp(min=1)
        assert error < 1e-5


@pytest.mark.parametrize("over", ["channels", "positions"])
def test_second_derivatives(over: Over) -> None:
    x, bend = randn(2, 3, 2, 2).double().requires_grad_(), torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x, bend: scale_by_moments(x, over, rule, bend), (x, bend))
