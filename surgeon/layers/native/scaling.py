"""The kernels of a scale and a shift that depend on the moments of the features (N, C, ...).

As all kernels, each answers None where it does not apply. What they are parts of: surgeon/layers/scaling.py.
"""

from __future__ import annotations

import ctypes
from typing import Literal

import torch
from torch import Tensor

from surgeon.layers.native import _contiguous, _library, _order, _plain, _pointer, _size, being_watched

Over = Literal["channels", "positions"]
"""What one mean and one sum are taken over, of each example."""


class Job(ctypes.Structure):
    """`Scaling` of scaling.c."""

    _fields_ = (
        *((name, _pointer) for name in ("x", "grad", "out")),
        *((name, _size) for name in ("outer", "reduced", "inner")),
        *((name, _pointer) for name in ("first", "second", "mean", "scale", "slope", "offset")),
    )


def moments(x: Tensor, over: Over) -> tuple[Tensor, Tensor] | None:
    """Mean and unbiased variance, of size 1 in what they are taken over."""
    if being_watched():
        return None
    library, job = _library(), _job(x, over)
    if library is None or job is None:
        return None
    mean, var = _results(job, x, over)
    library.scaling_moments(ctypes.byref(job), torch.get_num_threads())
    return mean, var


def products(grad: Tensor, x: Tensor, over: Over) -> tuple[Tensor, Tensor] | None:
    """Sums of `grad * x` and of `grad`, which is laid out as x is: see `alike`."""
    library, job = _library(), _job(x, over)
    if library is None or job is None or not _plain(grad):
        return None
    product, total = _results(job, x, over)
    job.grad = grad.data_ptr()
    library.scaling_products(ctypes.byref(job), torch.get_num_threads())
    return product, total


def gradient(
    grad: Tensor, x: Tensor, over: Over, mean: Tensor, scale: Tensor, slope: Tensor, offset: Tensor
) -> Tensor | None:
    """`grad * scale - (x - mean) * slope - offset`."""
    library, job, coefficients = _library(), _job(x, over), (mean, scale, slope, offset)
    if library is None or job is None or not _plain(grad, *coefficients) or not _contiguous(*coefficients):
        return None
    out = torch.empty_like(x)
    job.grad, job.out = grad.data_ptr(), out.data_ptr()
    job.mean, job.scale, job.slope, job.offset = (t.data_ptr() for t in coefficients)
    library.scaling_gradient(ctypes.byref(job), torch.get_num_threads())
    return out


def alike(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient, laid out as x is."""
    return grad if grad.stride() == x.stride() else torch.empty_like(x).copy_(grad)


def _job(x: Tensor, over: Over) -> Job | None:
    order = _order(x)
    if order is None or x.dim() < 3 or x.numel() == 0 or not _plain(x):
        return None
    examples, channels = x.shape[:2]
    positions = x.shape[2:].numel()
    if over == "positions":
        sizes = (examples * channels, positions, 1) if order == "rows" else (examples, positions, channels)
    else:
        sizes = (examples, channels, positions) if order == "rows" else (examples * positions, channels, 1)
    return Job(x.data_ptr(), None, None, *sizes)


def _results(job: Job, x: Tensor, over: Over) -> tuple[Tensor, Tensor]:
    shape = (*x.shape[:2], *[1] * (x.dim() - 2)) if over == "positions" else (len(x), 1, *x.shape[2:])
    first, second = x.new_empty((2, *shape))
    job.first, job.second = first.data_ptr(), second.data_ptr()
    return first, second
