"""The halves of a batch for the branches of a split layer: near float64, in every layout, and refused as by torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import surgeon
from surgeon.layers import native
from surgeon.layers.halves import normalise_halves
from tests.helpers import randn, randomise

SHAPES = [(4, 5, 7, 3), (6, 33, 9, 9), (8, 16, 41, 43), (4, 1, 5, 5), (2, 3, 1, 2)]


def split_layer(channels: int, **options: bool) -> nn.Module:
    layer = surgeon.convert(randomise(nn.BatchNorm2d(channels, **options)), "split").train()
    randomise(layer.aux, seed=3)
    layer.aux.epsilon = 1e-3
    return layer


def run(layer: nn.Module, x: Tensor, upstream: Tensor) -> list[Tensor]:
    """Output, gradients of input and parameters, and running statistics of both branches."""
    x = x.detach().requires_grad_()
    with surgeon.branch(layer, "halves"):
        y = layer(x)
    gradients = torch.autograd.grad(y, (x, *layer.parameters()), upstream)
    return [y.detach(), *gradients, *(t for t in layer.buffers() if t.is_floating_point())]


@pytest.mark.parametrize("options", [{}, {"affine": False}], ids=["affine", "plain"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("threads", [1, 2])
def test_values_gradients_and_statistics_are_near_those_of_float64(
    options: dict[str, bool], shape: tuple[int, ...], memory_format: torch.memory_format, threads: int
) -> None:
    x, upstream = (3 + randn(*shape)).contiguous(memory_format=memory_format), randn(*shape, seed=1)
    layer, exact = split_layer(shape[1], **options), split_layer(shape[1], **options).double()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert (normalise_halves(layer, layer.aux, x) is not None) == native.available()
        layer = split_layer(shape[1], **options)  # one whose statistics have not moved
        ours, expected = run(layer, x, upstream), run(exact, x.double(), upstream.double())
    finally:
        torch.set_num_threads(before)
    assert ours[0].stride() == x.stride()
    for own, reference in zip(ours, expected, strict=True):
        error = (own.double() - reference).abs().max() / reference.abs().max().clamp(min=1)
        assert error < 1e-5
    assert int(layer.num_batches_tracked) == int(layer.aux.num_batches_tracked) == 1


def test_second_derivatives_are_those_of_torch() -> None:
    x, results = randn(4, 3, 5, 5), []
    for dtype in (torch.float32, torch.float64):
        layer, own = split_layer(3).to(dtype), x.to(dtype).requires_grad_()
        with surgeon.branch(layer, "halves"):
            y = layer(own)
        first = torch.autograd.grad(y.square().sum(), (own, *layer.parameters()), create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in first), (own, *layer.parameters())))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("frozen", [[], ["weight"], ["weight", "bias"]], ids=len)
def test_only_gradients_that_are_wanted_are_given(frozen: list[str]) -> None:
    layer = split_layer(3)
    for name in frozen:
        getattr(layer.aux, name).requires_grad_(False)
    with surgeon.branch(layer, "halves"):
        layer(randn(4, 3, 5, 5)).square().sum().backward()
    assert [name for name, p in layer.named_parameters() if p.grad is None] == [f"aux.{name}" for name in frozen]


def test_halves_of_one_value_are_refused_as_by_torch() -> None:
    layer = split_layer(3)
    with surgeon.branch(layer, "halves"), pytest.raises(ValueError, match="more than 1 value per channel"):
        layer(randn(2, 3, 1, 1))


def test_other_rules_and_evaluation_are_not_taken_over() -> None:
    x = randn(4, 3, 5, 5)
    ghost = surgeon.convert(nn.BatchNorm2d(3), "split", "ghost:size=2").train()
    for layer in (ghost, split_layer(3).eval()):
        assert normalise_halves(layer, layer.aux, x) is None
