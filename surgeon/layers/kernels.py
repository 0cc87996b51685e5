"""Which kernels compute a layer: those of `native` on the CPU, those of `triton` on CUDA.

Each function answers None wherever no kernel applies, and the caller computes the same with torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from surgeon.layers import native, triton
from surgeon.layers.native import Activation, Groups, Noise


def on_gpu(x: Tensor) -> bool:
    """Whether Triton's kernels are asked."""
    return x.is_cuda


def example_weighted(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    alpha: Tensor,
    eps: float,
    *,
    noise: Noise | None = None,
    activation: Activation = Activation(),  # noqa: B008
) -> Tensor | None:
    """(N, C, ...) normalised by running moments and each example's own, and an activation."""
    compute = triton.example_weighted if on_gpu(x) else native.example_weighted
    return compute(x, mean, var, weight, bias, alpha, eps, noise=noise, activation=activation)


def takes_groups(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Whether `ghost_forward` applies, in an operation that brings its own gradients."""
    return (triton.takes_groups if on_gpu(x) else native.takes_groups)(x, weight, bias)


def ghost_forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    bounds: Sequence[tuple[int, int]],
    eps: float,
    channel_groups: int | None = None,
) -> Groups | None:
    """Each group of examples, and of channels, normalised by itself."""
    compute = triton.ghost_forward if on_gpu(x) else native.ghost_forward
    return compute(x, weight, bias, bounds, eps, channel_groups)


def ghost_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bounds: Sequence[tuple[int, int]],
    centre: Tensor,
    inverse: Tensor,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Gradients of `ghost_forward` for input, weight and bias."""
    compute = triton.ghost_backward if on_gpu(x) else native.ghost_backward
    return compute(grad, x, weight, bounds, centre, inverse)


def updated_running(
    mean: Tensor,
    var: Tensor,
    bounds: Sequence[tuple[int, int]],
    running_mean: Tensor,
    running_var: Tensor,
    factor: float,
) -> Tensor | None:
    """Running moments moved by `factor` towards the moments of all groups, (G, C) each, together."""
    compute = triton.updated_running if on_gpu(mean) else native.updated_running
    return compute(mean, var, bounds, running_mean, running_var, factor)
