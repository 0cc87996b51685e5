"""The whole unit in a training batch by the kernel of native/selfnorm.c: features are read once, forward and backward.

After a pass over large features the caches hold nothing of Python's, and its operations take several times as long
as usual: so there are few of them here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from surgeon.layers.differentiation import differentiable_gradients
from surgeon.layers.native import _library, _places, _plain
from surgeon.layers.native.scaling import alike

Running = tuple[Tensor, Tensor, float]
"""A gate's running mean and variance, and by which share a batch moves them."""


class _Job(ctypes.Structure):
    """`SelfNorm` of selfnorm.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "grad", "out")),
        *((name, ctypes.c_ssize_t) for name in ("examples", "channels", "positions", "gates")),
        *((name, ctypes.c_void_p) for name in ("rows", "sums", "gradients")),
        ("parameters", ctypes.c_void_p * 6),
        ("running", ctypes.c_void_p * 4),
        ("factor", ctypes.c_float * 2),
        ("norm_eps", ctypes.c_float * 2),
        ("eps", ctypes.c_float),
        ("most", ctypes.c_float),
    )


def recalibrate_batch(
    x: Tensor,
    parameters: Sequence[Tensor],
    running: Sequence[Running | None],
    norm_eps: Sequence[float],
    eps: float,
    most: int,
    again: Callable[..., Tensor],
) -> Tensor | None:
    """Features (N, C, ...) recalibrated by one gate or two; None where the kernel does not apply.

    Args:
        x: The features.
        parameters: Each gate's filter, and its BatchNorm's weight and bias.
        running: What each gate's BatchNorm keeps.
        norm_eps: Added to the variance in each BatchNorm.
        eps: Added to the variance of features.
        most: What gates are below.
        again: The same by torch's operations, from features and parameters, for a second derivative.
    """
    kept = [t for one in running if one is not None for t in one[:2]]
    with torch.no_grad():
        library, places = _library(), _places(x, *parameters, *kept)
        if library is None or places is None or len(x) < 2:
            return None
        if not all(t.is_contiguous() for t in (x, *parameters, *kept)):
            return None
        gates, (examples, channels) = len(norm_eps), x.shape[:2]
        y, rows = torch.empty_like(x), x.new_empty((2 + gates, channels, examples))
        job = _Job(
            places[0], None, y.data_ptr(), examples, channels, x.shape[2:].numel(), gates,
            rows.data_ptr(), None, None, tuple(places[1 : 1 + len(parameters)]),
        )  # fmt: skip
        job.norm_eps, job.eps, job.most = tuple(norm_eps), eps, most
        if kept:
            of_kept = iter(places[1 + len(parameters) :])
            job.running = tuple(None if one is None else next(of_kept) for one in running for _ in range(2))
            job.factor = tuple(0.0 if one is None else one[2] for one in running)
            torch.autograd.graph.increment_version(kept)
        library.selfnorm_forward(ctypes.byref(job), torch.get_num_threads())
    # Job keeps addresses, not tensors: those that the backward pass needs are saved beside it.
    recalibrated: Tensor = _Differentiable.apply(x, (y, rows, job, again), *parameters)
    return recalibrated


class _Differentiable(torch.autograd.Function):
    """What has been computed, with its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, done: Any, *parameters: Tensor) -> Tensor:
        y, rows, ctx.job, ctx.again = done
        ctx.save_for_backward(x, rows, *parameters)
        result: Tensor = y
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, rows, *parameters = ctx.saved_tensors
        grad = alike(grad, x)
        twice = torch.is_grad_enabled()
        library = _library() if not twice and _plain(grad) else None
        if library is None:
            wanted = (ctx.needs_input_grad[0], *ctx.needs_input_grad[2:])
            found = differentiable_gradients(ctx.again, (x, *parameters), wanted, grad)
            of_x, *others = found if twice else (None if g is None else g.detach() for g in found)
            return of_x, None, *others
        job, channels = ctx.job, x.shape[1]
        result, sums = torch.empty_like(x), rows.new_empty((4, *rows.shape[1:]))
        gradients = rows.new_empty(4 * channels * job.gates)
        job.x, job.rows = x.data_ptr(), rows.data_ptr()
        job.parameters = tuple(t.data_ptr() for t in parameters)
        job.grad, job.out, job.sums, job.gradients = (t.data_ptr() for t in (grad, result, sums, gradients))
        library.selfnorm_backward(ctypes.byref(job), torch.get_num_threads())
        parts = gradients.split([2 * channels, channels, channels] * job.gates)
        return result, None, *(part.view(t.shape) for part, t in zip(parts, parameters, strict=True))
