"""The halves of a batch, each normalised in training with the statistics and parameters of a branch of its own.

Torch's BatchNorm would take them cut out of the batch, and its results would be joined: more passes over the features,
forward and backward. Here every half is read and written in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from surgeon.layers import kernels, native
from surgeon.layers.differentiation import differentiable_gradients
from surgeon.layers.native import Groups
from surgeon.layers.rules import BatchStatistics

if TYPE_CHECKING:
    from surgeon.layers.surgical import SurgicalNorm


def normalise_halves(main: SurgicalNorm, aux: SurgicalNorm, x: Tensor) -> Tensor | None:
    """The first half of a training batch by one layer and the second by another; None where no kernel applies."""
    half, layers = len(x) // 2, (main, aux)
    if not all(map(_takes_batch_statistics, layers)) or half * x.shape[2:].numel() < 2 or kernels.on_gpu(x):
        return None
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    if not all(kernels.takes_groups(x, layer.weight, layer.bias) for layer in layers):
        return None
    eps = [layer.epsilon for layer in layers]
    with torch.no_grad():
        y, done = torch.empty_like(x), []
        for at, (weight, bias), small in zip(_halves(x), _pairs(parameters), eps, strict=True):
            groups = native.ghost_forward(x[at], weight, bias, [(0, half)], small, y=y[at])
            if groups is None:
                return None
            done.append(groups)
    for layer, groups in zip(layers, done, strict=True):
        _update_running(layer, groups, half * x.shape[2:].numel())
    joined: Tensor = Halves.apply(x, *parameters, Done(y, done, eps))
    return joined


def _takes_batch_statistics(layer: SurgicalNorm) -> bool:
    return (
        type(layer.training_rule) is BatchStatistics
        and layer.training
        and not layer.frozen
        and layer.whole_rule is None
    )


def _halves(x: Tensor) -> tuple[slice, slice]:
    half = len(x) // 2
    return slice(half), slice(half, None)


def _pairs(parameters: Sequence[Tensor | None]) -> list[tuple[Tensor | None, Tensor | None]]:
    return list(zip(parameters[::2], parameters[1::2], strict=True))


def _update_running(layer: SurgicalNorm, batch: Groups, values: int) -> None:
    """As torch's BatchNorm: the variance is unbiased."""
    factor = layer.next_average_factor()
    if layer.running_mean is None or layer.running_var is None or not layer.track_running_stats:
        return
    with torch.no_grad():
        layer.running_mean.lerp_(batch.mean[0].to(layer.running_mean), factor)
        layer.running_var.lerp_((batch.var[0] * (values / (values - 1))).to(layer.running_var), factor)


class Done(NamedTuple):
    """What has been computed of both halves. (A result among the arguments of `Halves` would be a view of itself.)"""

    y: Tensor
    halves: list[Groups]
    eps: list[float]


class Halves(torch.autograd.Function):
    """What has been computed, with its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *rest: Any) -> Tensor:
        *parameters, done = rest
        ctx.save_for_backward(x, *parameters, *(t for half in done.halves for t in (half.centre, half.inverse)))
        ctx.eps = done.eps
        y: Tensor = done.y
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *saved = ctx.saved_tensors
        parameters, of_moments = saved[:4], saved[4:]
        wanted = ctx.needs_input_grad[:5]
        twice = torch.is_grad_enabled()
        gradients: tuple[Tensor | None, ...] | None = None
        if not twice:
            gradients = _gradients(grad, x, parameters, of_moments)
        if gradients is None:
            gradients = differentiable_gradients(
                lambda x, *parameters: _by_torch(x, parameters, ctx.eps), (x, *parameters), wanted, grad
            )
            gradients = gradients if twice else tuple(None if g is None else g.detach() for g in gradients)
        return (*(g if w else None for g, w in zip(gradients, wanted, strict=True)), None)


def _gradients(
    grad: Tensor, x: Tensor, parameters: Sequence[Tensor | None], of_moments: Sequence[Tensor]
) -> tuple[Tensor, ...] | None:
    grad_x = torch.empty_like(x)
    gradients = [grad_x]
    moments = zip(of_moments[::2], of_moments[1::2], strict=True)
    for at, (weight, _), (centre, inverse) in zip(_halves(x), _pairs(parameters), moments, strict=True):
        bounds = [(0, len(x) // 2)]
        done = native.ghost_backward(grad[at], x[at], weight, bounds, centre, inverse, grad_x=grad_x[at])
        if done is None:
            return None
        gradients += done[1:]
    return tuple(gradients)


def _by_torch(x: Tensor, parameters: Sequence[Tensor | None], eps: Sequence[float]) -> Tensor:
    halves = zip(_halves(x), _pairs(parameters), eps, strict=True)
    return torch.cat([F.batch_norm(x[at], None, None, *pair, True, 0.0, small) for at, pair, small in halves])
