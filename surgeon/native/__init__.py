"""Compiled CPU kernels, built at installation where a C compiler is at hand; optional.

`example_weighted` answers None wherever the kernel does not apply (no compiler at installation,
another device or dtype, a gradient is wanted, the model is being traced), and the caller computes
the same with torch.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache

import torch
from torch import Tensor


@cache
def _library() -> ctypes.CDLL | None:
    spec = importlib.util.find_spec("surgeon.native._kernels")
    if spec is None or spec.origin is None:
        return None
    try:
        library = ctypes.CDLL(spec.origin)
    except OSError:  # torch was built without OpenMP, or with another runtime
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_ssize_t
    for kernel in (library.example_weighted_rows, library.example_weighted_columns):
        kernel.argtypes = [pointer, pointer, size, size, size, *[pointer] * 5, ctypes.c_float, ctypes.c_int]
        kernel.restype = ctypes.c_int
    return library


def available() -> bool:
    """Whether the compiled kernels are installed and usable with this torch."""
    return _library() is not None


def example_weighted(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    alpha: Tensor,
    eps: float,
) -> Tensor | None:
    """Example-weighted normalisation of (N, C, ...) in one pass over memory, or None if it does not apply."""
    if being_traced() or not _applies(x, mean, var, weight, bias, alpha) or (library := _library()) is None:
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
        mean.data_ptr(), var.data_ptr(),
        None if weight is None else weight.data_ptr(), None if bias is None else bias.data_ptr(),
        alpha.data_ptr(), eps, torch.get_num_threads(),
    )  # fmt: skip
    return None if failed else y


def being_traced() -> bool:
    """Whether torch.compile, torch.export or the tracer is recording: then only torch operations may run."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _applies(x: Tensor, *others: Tensor | None) -> bool:
    if x.dim() < 3 or x.numel() == 0:
        return False
    tensors = [x, *(t for t in others if t is not None)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return False
    return all(
        type(t) in (Tensor, torch.nn.Parameter) and t.dtype is torch.float32 and t.device.type == "cpu" for t in tensors
    ) and all(t.is_contiguous() for t in tensors[1:])
