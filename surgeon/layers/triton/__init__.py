"""Kernels for CUDA, written in Triton; optional.

Triton comes with torch's builds for CUDA and is imported when a layer first meets features on a GPU. Where it is
missing or fails (it needs a C compiler once, and a GPU that it knows), each function answers None from then on, as it
does wherever its kernel does not apply, and the caller computes the same with torch. torch.compile gets torch's
formulas, of which it makes kernels of its own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from surgeon.layers import native
from surgeon.layers.native import Activation, Noise

if TYPE_CHECKING:
    from surgeon.layers.triton.tiles import Groups

Result = TypeVar("Result")

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_failures: list[str] = []


def installed() -> bool:
    """Whether there is a Triton to import."""
    return importlib.util.find_spec("triton") is not None


def failure() -> str:
    """Why the kernels are no longer tried, or nothing."""
    return _failures[0] if _failures else ""


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
    """(N, C, ...) normalised by running moments and each example's own, and an activation.

    Sums are taken in float32, whatever the dtype of the features.
    """
    if x.dim() < 2 or not x.numel() or not _readable(x, mean, var, weight, bias, alpha):
        return None
    if not _contiguous(mean, var, weight, bias, alpha):
        return None

    def compute() -> Tensor:
        from surgeon.layers.triton import tiles, weighting

        own = x if _dense(x) else x.contiguous()
        return weighting.example_weighted(
            own, tiles.features_of(own), mean, var, weight, bias, alpha, eps, noise, activation
        )

    return _tried(compute, x)


def takes_groups(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Whether `ghost_forward` applies, in an operation that brings its own gradients."""
    with torch.no_grad():
        usable = x.dim() >= 2 and x.numel() > 0 and _readable(x, weight, bias) and _contiguous(weight, bias)
    return usable and _dense(x) and installed() and not _failures


def ghost_forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    bounds: Sequence[tuple[int, int]],
    eps: float,
    channel_groups: int | None = None,
) -> native.Groups | None:
    """Each group of examples, and of channels, normalised by itself."""
    if not takes_groups(x, weight, bias) or not _regular(bounds):
        return None

    def compute() -> native.Groups:
        from surgeon.layers.triton import ghost, tiles

        features, groups = tiles.features_of(x), _groups(bounds)
        return ghost.forward(x, features, weight, bias, groups, eps, channel_groups or features.channels)

    return _tried(compute, x)


def ghost_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bounds: Sequence[tuple[int, int]],
    centre: Tensor,
    inverse: Tensor,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Gradients of `ghost_forward` for input, weight and bias."""
    tensors = (centre, inverse, weight)
    if not _readable(grad, x, *tensors) or not _contiguous(*tensors) or not _dense(x) or not _regular(bounds):
        return None

    def compute() -> tuple[Tensor, Tensor, Tensor]:
        from surgeon.layers.triton import gradients, tiles

        upstream = grad if grad.stride() == x.stride() else torch.empty_like(x, dtype=grad.dtype).copy_(grad)
        return gradients.backward(upstream, x, tiles.features_of(x), weight, _groups(bounds), centre, inverse)

    return _tried(compute, x)


def updated_running(
    mean: Tensor,
    var: Tensor,
    bounds: Sequence[tuple[int, int]],
    running_mean: Tensor,
    running_var: Tensor,
    factor: float,
) -> Tensor | None:
    """Running moments (2, C) moved by `factor` towards the moments of all groups, (G, C) each, together."""
    tensors = (mean, var, running_mean, running_var)
    if not _readable(*tensors) or not _contiguous(*tensors) or not _regular(bounds):
        return None

    def compute() -> Tensor:
        from surgeon.layers.triton import running

        return running.updated_running(mean, var, _groups(bounds), running_mean, running_var, factor)

    return _tried(compute, mean)


def _tried(compute: Callable[[], Result], x: Tensor) -> Result | None:
    """What is computed on the device of x, unless Triton has failed: now, or before."""
    if _failures:
        return None
    try:
        with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
            return compute()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of an installation, a compiler, a driver: whatever it is, torch computes the same
        _failures.append(f"{type(error).__name__}: {error}")
        return None


def _groups(bounds: Sequence[tuple[int, int]]) -> Groups:
    from surgeon.layers.triton.tiles import Groups

    return Groups(len(bounds), bounds[0][1], bounds[-1][1] - bounds[-1][0])


def _regular(bounds: Sequence[tuple[int, int]]) -> bool:
    """Whether all groups but the last are of one size, and nothing lies between them."""
    size = bounds[0][1]
    starts_right = all(start == number * size for number, (start, _) in enumerate(bounds))
    return starts_right and all(stop == start + size for start, stop in bounds[:-1])


def _readable(x: Tensor, *others: Tensor | None) -> bool:
    """Whether a kernel may read all: ordinary tensors of one device, of which no gradient is wanted."""
    if native.being_watched() or not native.ordinary(x, *others):
        return False
    recording = torch.is_grad_enabled()
    for t in (x, *others):
        if t is None:
            continue
        if t.dtype not in _DTYPES or t.device != x.device or (recording and t.requires_grad):
            return False
    return True


def _contiguous(*tensors: Tensor | None) -> bool:
    return all(t is None or t.is_contiguous() for t in tensors)


def _dense(x: Tensor) -> bool:
    """In one of the two orders that the kernels know."""
    return x.is_contiguous() or x.movedim(1, -1).is_contiguous()
