"""Features times a scale plus a shift, by a rule that depends on their own moments.

The rule works on few numbers, and only it is left to autograd. Left to autograd as a whole, such an operation reads and
writes the features a dozen times in a training step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from surgeon.layers import native
from surgeon.layers.differentiation import differentiable_gradients
from surgeon.layers.native import scaling as kernels
from surgeon.layers.native.scaling import Over

Rule = Callable[..., list[Tensor]]
"""The scale, and where there is one the shift, in the shape of the mean: from mean, unbiased variance and parameters.

With `again` it computes a second derivative, and what else it does it has done before.
"""


def applies(x: Tensor, over: Over, *parameters: Tensor) -> bool:
    """Whether `scale_by_moments` knows how to compute it, and its gradient should one be wanted."""
    if native.being_watched() or torch.is_inference_mode_enabled() or not native.ordinary(x, *parameters):
        return False
    values = x.shape[1] if over == "channels" else x.shape[2:].numel()
    return x.dim() > 2 and x.numel() > 0 and values > 1


def scale_by_moments(x: Tensor, over: Over, rule: Rule, *parameters: Tensor) -> Tensor:
    """`x * scale + shift`. The features are not centred for it: a scale of 1 without shift changes no bit."""
    y: Tensor = ScaleByMoments.apply(x, over, rule, *parameters)
    return y


class ScaleByMoments(torch.autograd.Function):
    """In few passes over the features, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, over: Over, rule: Rule, *parameters: Tensor) -> Tensor:
        found = kernels.moments(x, over) or _moments(x, over)
        ctx.leaves = [t.detach().requires_grad_() for t in (*found, *parameters)]
        with torch.enable_grad():
            ctx.made = rule(*ctx.leaves, again=False)
        ctx.save_for_backward(x, *parameters)
        ctx.over, ctx.rule = over, rule
        scale, *shift = (t.detach() for t in ctx.made)
        y = torch.mul(x, scale, out=torch.empty_like(x))
        return y.add_(shift[0]) if shift else y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *parameters = ctx.saved_tensors
        over: Over = ctx.over
        if torch.is_grad_enabled():
            wanted = (ctx.needs_input_grad[0], *ctx.needs_input_grad[3:])
            again = partial(scale_once_more, over, ctx.rule)
            of_x, *others = differentiable_gradients(again, (x, *parameters), wanted, grad)
            return of_x, None, None, *others
        grad = kernels.alike(grad, x)
        of_made = kernels.products(grad, x, over) or _products(grad, x, over)
        of_mean, of_var, *of_parameters = torch.autograd.grad(
            ctx.made, ctx.leaves, of_made[: len(ctx.made)], True, materialize_grads=True
        )
        mean, scale = ctx.leaves[0].detach(), ctx.made[0].detach().contiguous()
        count = x.numel() // mean.numel()
        slope, offset = of_var * (-2 / (count - 1)), of_mean / -count
        of_x = kernels.gradient(grad, x, over, mean, scale, slope, offset)
        if of_x is None:
            of_x = (x - mean).mul_(-slope).sub_(offset).addcmul_(grad, scale)
        return of_x, None, None, *of_parameters


def scale_once_more(over: Over, rule: Rule, x: Tensor, *parameters: Tensor) -> Tensor:
    """What `scale_by_moments` computes, by torch's operations alone, for a second derivative."""
    scale, *shift = rule(*_moments(x, over), *parameters, again=True)
    y = x * scale
    return y + shift[0] if shift else y


def _dims(x: Tensor, over: Over) -> tuple[int, ...]:
    return (1,) if over == "channels" else tuple(range(2, x.dim()))


def _moments(x: Tensor, over: Over) -> tuple[Tensor, Tensor]:
    dims = _dims(x, over)
    mean = x.mean(dims, keepdim=True)
    squares = (x - mean).square() if torch.is_grad_enabled() else (x - mean).square_()
    return mean, squares.sum(dims, keepdim=True) / (x.numel() // mean.numel() - 1)


def _products(grad: Tensor, x: Tensor, over: Over) -> tuple[Tensor, Tensor]:
    dims = _dims(x, over)
    return (x * grad).sum(dims, keepdim=True), grad.sum(dims, keepdim=True)
