"""Compiled CPU kernels, built at installation where a C compiler is at hand; optional.

Each function answers None wherever its kernel does not apply (no compiler at installation, another
device, dtype or memory layout, a gradient is wanted of it, something records or replaces torch's
operations), and the caller computes the same with torch.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from surgeon.core.private import is_lazily_zero, operations_are_intercepted

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@cache
def _library() -> ctypes.CDLL | None:
    spec = importlib.util.find_spec("surgeon.layers.native._kernels")
    if spec is None or spec.origin is None:
        return None
    try:
        library = ctypes.CDLL(spec.origin)
        _declare(library)
    except (OSError, AttributeError):  # another OpenMP runtime than torch's, or none; or an older build
        return None
    return library


def _declare(library: ctypes.CDLL) -> None:
    """What each kernel takes; AttributeError if one is not there."""
    pointer, size, number, whole = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_float, ctypes.c_int
    for kernel in (library.example_weighted_rows, library.example_weighted_columns):
        kernel.argtypes = [pointer, pointer, size, size, size, *[pointer] * 5, number, whole]
        kernel.restype = whole
    shape: list[Any] = [size, size, pointer, size]
    library.ghost_forward.argtypes = [*[pointer] * 2, *shape, *[pointer] * 2, number, *[pointer] * 2, whole]
    library.ghost_backward.argtypes = [*[pointer] * 3, *shape, *[pointer] * 5, whole]
    library.ghost_forward.restype = library.ghost_backward.restype = None
    _declare_mixing(library)
    _declare_corrupting(library)


def _declare_mixing(library: ctypes.CDLL) -> None:
    pointer, size, number, whole = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_float, ctypes.c_int
    pairs: list[Any] = [*[pointer] * 3, *[size] * 5]
    library.mix_lines.argtypes = [*pairs, *[pointer] * 3, whole]
    library.mix_evenly.argtypes = [*[pointer] * 3, *[size] * 2, *[pointer] * 3, whole]
    library.mix_concats.argtypes = [*pairs, *[pointer] * 3, number, *[pointer] * 3, whole]
    library.mix_noisily.argtypes = [*pairs, *[pointer] * 4, whole]
    library.mix_boxes.argtypes = [*pairs, *[pointer] * 4, whole]
    library.mix_chances.argtypes = [*pairs, *[pointer] * 4, whole]
    library.place_boxes.argtypes = [*[pointer] * 2, *[size] * 3, *[pointer] * 2]
    library.mix_waves.argtypes = [*[pointer] * 3, *[size] * 2, pointer, number, *[pointer] * 2, whole]
    library.random_words.argtypes = [pointer, pointer, size, whole]
    for name in ("evenly", "lines", "waves", "concats", "noisily", "boxes", "chances"):
        getattr(library, f"mix_{name}").restype = None
    library.place_boxes.restype = library.random_words.restype = None


def _declare_corrupting(library: ctypes.CDLL) -> None:
    pointer, size, number = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_float
    image: list[Any] = [pointer, *[size] * 3]
    library.corrupt_filter.argtypes = [*image, *[pointer] * 2, size, *[pointer] * 2, size, *[pointer] * 2]
    library.corrupt_shuffle.argtypes = [*image, pointer, *[size] * 2]
    library.corrupt_zoom.argtypes = [*image, *[pointer] * 4, size, *[pointer] * 2]
    library.corrupt_sample.argtypes = [*image, *[pointer] * 3]
    library.corrupt_draw.argtypes = [*[pointer] * 2, size, pointer, size, *[pointer] * 3]
    library.corrupt_normals.argtypes = [pointer, size, *[pointer] * 2, number, pointer]
    for name in ("filter", "shuffle", "zoom", "sample", "draw", "normals"):
        getattr(library, f"corrupt_{name}").restype = None


def available() -> bool:
    """Whether the compiled kernels are installed and usable with this torch."""
    return _library() is not None


def being_watched() -> bool:
    """Whether something records or replaces torch's operations: then nothing else may run.

    That is torch.compile, torch.export and the tracer, torch.func and forward-mode differentiation, and every mode
    that intercepts operations: make_fx, fake tensors, operation counters.
    """
    return torch.compiler.is_compiling() or operations_are_intercepted()


def ordinary(*tensors: Tensor | None) -> bool:
    """Whether all are plain tensors with their values in memory as they are: no subclass, no lazy negative or zero."""
    return all(
        t is None
        or (
            (type(t) is Tensor or type(t) is torch.nn.Parameter)
            and t.layout is torch.strided
            and not (t.is_neg() or t.is_conj() or is_lazily_zero(t))
        )
        for t in tensors
    )


def example_weighted(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, alpha: Tensor, eps: float
) -> Tensor | None:
    """Example-weighted normalisation of (N, C, ...) in one pass over memory, or None if it does not apply."""
    if x.dim() < 3 or x.numel() == 0 or not _plain(x, mean, var, weight, bias, alpha):
        return None
    library = _library()
    if library is None or not _contiguous(mean, var, weight, bias, alpha):
        return None
    if x.is_contiguous():
        kernel = library.example_weighted_rows
    elif x.is_contiguous(memory_format=_CHANNELS_LAST.get(x.dim(), torch.contiguous_format)):
        kernel = library.example_weighted_columns
    else:
        return None
    y = torch.empty_like(x)
    examples, channels = x.shape[:2]
    failed = kernel(
        x.data_ptr(), y.data_ptr(), examples, channels, x.numel() // (examples * channels),
        mean.data_ptr(), var.data_ptr(), _address(weight), _address(bias), alpha.data_ptr(), eps,
        torch.get_num_threads(),
    )  # fmt: skip
    return None if failed else y


def ghost_forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, bounds: Sequence[tuple[int, int]], eps: float
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Each group of examples normalised by itself, with the groups' mean and inverse deviation, (G, C)."""
    if x.dim() < 2 or x.numel() == 0 or not _plain(x, weight, bias) or not _contiguous(x, weight, bias):
        return None
    library = _library()
    if library is None:
        return None
    y, mean = torch.empty_like(x), x.new_empty((len(bounds), x.shape[1]))
    inverse_std = torch.empty_like(mean)
    library.ghost_forward(
        x.data_ptr(), y.data_ptr(), x.shape[1], x[0, 0].numel(), _edges(bounds), len(bounds),
        _address(weight), _address(bias), eps, mean.data_ptr(), inverse_std.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return y, mean, inverse_std


def ghost_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bounds: Sequence[tuple[int, int]],
    mean: Tensor,
    inverse_std: Tensor,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Gradients of `ghost_forward` for input, weight and bias."""
    library = _library()
    if library is None or not _plain(grad, x, weight) or not _contiguous(x, weight):
        return None
    grad, grad_x = grad.contiguous(), torch.empty_like(x)
    grad_weight, grad_bias = torch.empty_like(mean), torch.empty_like(mean)
    library.ghost_backward(
        grad.data_ptr(), x.data_ptr(), grad_x.data_ptr(), x.shape[1], x[0, 0].numel(), _edges(bounds), len(bounds),
        _address(weight), mean.data_ptr(), inverse_std.data_ptr(), grad_weight.data_ptr(), grad_bias.data_ptr(),
        torch.get_num_threads(),
    )  # fmt: skip
    return grad_x, grad_weight.sum(0), grad_bias.sum(0)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _edges(bounds: Sequence[tuple[int, int]]) -> ctypes.Array[ctypes.c_ssize_t]:
    return (ctypes.c_ssize_t * (len(bounds) + 1))(0, *(stop for _, stop in bounds))


def _plain(*tensors: Tensor | None) -> bool:
    """Whether a kernel may read all: ordinary float32 tensors on the CPU of which no gradient is wanted."""
    if being_watched() or not ordinary(*tensors):
        return False
    recording = torch.is_grad_enabled()
    return all(
        t is None or (t.dtype is torch.float32 and t.is_cpu and not (recording and t.requires_grad)) for t in tensors
    )


def _contiguous(*tensors: Tensor | None) -> bool:
    return all(t is None or t.is_contiguous() for t in tensors)
