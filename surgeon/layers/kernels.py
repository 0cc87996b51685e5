"""Which kernels compute a layer: those of `native` on the CPU.

Each function answers None wherever no kernel applies, and the caller computes the same with torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from surgeon.layers import native
from surgeon.layers.native import Activation, Groups, Noise


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
    return native.example_weighted(x, mean, var, weight, bias, alpha, eps, noise=noise, activation=activation)


def takes_groups(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Whether `ghost_forward` applies, in an operation that brings its own gradients."""
    return native.takes_groups(x, weight, bias)


def ghost_forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    bounds: Sequence[tuple[int, int]],
    eps: float,
    channel_groups: int | None = None,
) -> Groups | None:
    """Each group of examples, and of channels, normalised by itself."""
    return native.ghost_forward(x, weight, bias, bounds, eps, channel_groups)


def ghost_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bounds: Sequence[tuple[int, int]],
    centre: Tensor,
    inverse: Tensor,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Gradients of `ghost_forward` for input, weight and bias."""
    return native.ghost_backward(grad, x, weight, bounds, centre, inverse)


def updated_running(
    mean: Tensor,
    var: Tensor,
    bounds: Sequence[tuple[int, int]],
    running_mean: Tensor,
    running_var: Tensor,
    factor: float,
) -> Sequence[Tensor] | Tensor | None:
    """Running moments moved by `factor` towards the moments of all groups, (G, C) each, together."""
    return native.updated_running(mean, var, bounds, running_mean, running_var, factor)
