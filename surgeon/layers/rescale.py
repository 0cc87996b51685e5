"""Features rescaled example by example, by a rule that depends on their own moments.

Normalisations whose statistics are those of single examples and channels are a scale and a shift of
centred features. The rule that gives both works on (N, C) numbers, and only it is left to autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from surgeon.layers import native
from surgeon.layers.statistics import Statistics, per_channel


def centre(x: Tensor) -> tuple[Tensor, Tensor]:
    """The features (N, C, ...) minus their example's channel means, and those, (N, C)."""
    if x.dim() == 2:
        return torch.zeros_like(x), x
    means = x.mean(_positions(x))
    return x - per_channel(means, x), means


def mean_squares(centred: Tensor) -> Tensor:
    """The (N, C) biased variances of centred features. (torch.var_mean on CPU takes ten times as long.)"""
    return centred.square() if centred.dim() == 2 else centred.square().mean(_positions(centred))


def _positions(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.dim()))


Rule = Callable[..., tuple[Tensor, Tensor]]
"""Computes the (N, C) scale and shift of centred features from their moments and from parameters."""


def rescale(x: Tensor, rule: Rule, *parameters: Tensor | None) -> Tensor:
    """`centred * scale + shift` by a rule that is a differentiable function of moments and parameters."""
    if x.dim() > 2 and torch.is_grad_enabled() and not native.being_traced():
        y: Tensor = Rescale.apply(x, rule, *parameters)
        return y
    centred, means = centre(x)
    scale, shift = rule(Statistics(means, mean_squares(centred)), *parameters)
    return scale_and_shift(centred, scale, shift)


class Rescale(torch.autograd.Function):
    """The same with its derivative in few passes: by autograd only on (N, C), on the features by hand.

    Left to autograd all of it takes one and a half times as long, and in channels-last layout twice as long.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rule: Rule, *parameters: Tensor | None) -> Tensor:
        centred, means = centre(x)
        examples = Statistics(means.requires_grad_(), mean_squares(centred).requires_grad_())
        leaves = [t if t is None else t.detach().requires_grad_() for t in parameters]
        with torch.enable_grad():
            scale, shift = rule(examples, *leaves)
        ctx.save_for_backward(x)
        ctx.leaves, ctx.scale, ctx.shift = [*examples, *leaves], scale, shift
        with torch.no_grad():
            return centred.mul_(per_channel(scale, x)).add_(per_channel(shift, x))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        positions = _positions(x)
        centred = x - per_channel(ctx.leaves[0].detach(), x)
        of_scale, of_shift = (grad * centred).sum(positions), grad.sum(positions)
        present = [t for t in ctx.leaves if t is not None]
        of_leaves = iter(
            torch.autograd.grad((ctx.scale, ctx.shift), present, (of_scale, of_shift), True, materialize_grads=True)
        )
        of_means, of_squares, *of_parameters = (None if t is None else next(of_leaves) for t in ctx.leaves)
        scale, share = ctx.scale.detach(), x.shape[1] * len(x) / x.numel()  # of one position in a mean
        # y depends on the means through the shift, and through what was subtracted of x.
        constant = share * (of_means - scale * of_shift)
        grad_x = centred.mul_(per_channel(2 * share * of_squares, x)).add_(per_channel(constant, x))
        return grad_x.addcmul_(grad, per_channel(scale, x)), None, *of_parameters


def scale_and_shift(centred: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Centred features times their (N, C) scale plus their shift."""
    return (centred * per_channel(scale, centred)).add_(per_channel(shift, centred))


def with_affine(scale: Tensor, shift: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The layer's own weight and bias on top, while all is still of size (N, C)."""
    if weight is not None:
        scale, shift = scale * weight, shift * weight
    return scale, shift if bias is None else shift + bias
