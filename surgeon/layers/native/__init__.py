"""Compiled CPU kernels, built at installation where a C compiler is at hand; optional.

Each function answers None wherever its kernel does not apply (no compiler at installation, another
device, dtype or memory layout, a gradient is wanted of it, something records or replaces torch's
operations), and the caller computes the same with torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, float32, strided
from torch.nn import Parameter

from surgeon.core import compiled
from surgeon.core.private import is_lazily_zero, operations_are_intercepted

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}

_pointer, _size, _number, _whole = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_float, ctypes.c_int


class _ExampleWeighted(ctypes.Structure):
    """`Job` of example_weighted.c."""

    _fields_ = (
        *((name, _pointer) for name in ("x", "y")),
        *((name, _size) for name in ("examples", "channels", "positions")),
        *((name, _pointer) for name in ("mean", "var", "weight", "bias", "alpha")),
        *((name, _number) for name in ("eps", "errors", "share")),
        ("activation", _whole),
        ("slope", _number),
    )


class _Ghost(ctypes.Structure):
    """`Ghost` of ghost.c."""

    _fields_ = (
        *((name, _pointer) for name in ("x", "y")),
        *((name, _size) for name in ("channels", "positions", "shared")),
        ("bounds", _pointer),
        ("groups", _size),
        *((name, _pointer) for name in ("weight", "bias")),
        ("eps", _number),
        *((name, _pointer) for name in ("mean", "var", "centre", "inverse")),
        *((name, _pointer) for name in ("grad", "grad_x", "grad_weight", "grad_bias")),
    )


class Noise(NamedTuple):
    """How far an example's moments correct the running ones: by a share of what is beyond some standard errors."""

    errors: float
    share: float


class Activation(NamedTuple):
    """What follows a normalisation, by its number in activations.h; without a number, nothing does."""

    number: int = 0
    slope: float = 0.0


class Groups(NamedTuple):
    """Groups of examples normalised, each by itself."""

    y: Tensor
    mean: Tensor
    """Of each group's channels, (G, C)."""
    var: Tensor
    """Biased; (G, C)."""
    centre: Tensor
    """What was subtracted, (G, channel groups)."""
    inverse: Tensor
    """The inverse deviation that was multiplied by, (G, channel groups)."""


@cache
def _library() -> ctypes.CDLL | None:
    library = compiled.library()
    if library is None:
        return None
    try:
        _declare(library)
    except AttributeError:  # an older build
        return None
    return library


def _declare(library: ctypes.CDLL) -> None:
    """What each kernel takes; AttributeError if one is not there."""
    for kernel in (library.example_weighted_rows, library.example_weighted_columns):
        kernel.argtypes, kernel.restype = [ctypes.POINTER(_ExampleWeighted), _whole], _whole
    for name in ("forward_rows", "forward_columns", "backward_rows", "backward_columns"):
        kernel = getattr(library, f"ghost_{name}")
        kernel.argtypes, kernel.restype = [ctypes.POINTER(_Ghost), _whole], _whole
    library.ghost_running.argtypes = [*[_pointer] * 3, *[_size] * 2, *[_pointer] * 2, ctypes.c_double, _pointer]
    library.ghost_running.restype = None
    for name in ("moments", "products", "gradient"):
        kernel = getattr(library, f"scaling_{name}")
        kernel.argtypes, kernel.restype = [_pointer, _whole], None
    for kernel in (library.selfnorm_forward, library.selfnorm_backward):
        kernel.argtypes, kernel.restype = [_pointer, _whole], None
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
    for t in tensors:
        if t is None:
            continue
        if (type(t) is not Tensor and type(t) is not Parameter) or t.layout is not strided:
            return False
        if t.is_neg() or t.is_conj() or is_lazily_zero(t):
            return False
    return True


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
    """(N, C, ...) normalised by running moments and each example's own, and an activation, in one pass over memory."""
    values = x.numel()
    if x.dim() < 3 or values == 0 or (places := _places(x, mean, var, weight, bias, alpha)) is None:
        return None
    library, order = _library(), _order(x)
    if library is None or order is None or not _contiguous(mean, var, weight, bias, alpha):
        return None
    y = torch.empty_like(x)
    examples, channels = x.shape[:2]
    errors, share = (-1.0, 0.0) if noise is None else noise
    job = _ExampleWeighted(
        places[0], y.data_ptr(), examples, channels, values // (examples * channels), *places[1:],
        eps, errors, share, *activation,
    )  # fmt: skip
    kernel = library.example_weighted_rows if order == "rows" else library.example_weighted_columns
    return None if kernel(job, torch.get_num_threads()) else y


def takes_groups(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Whether `ghost_forward` applies, in an operation that brings its own gradients."""
    with torch.no_grad():
        usable = x.dim() >= 2 and x.numel() > 0 and _plain(x, weight, bias) and _contiguous(weight, bias)
    return usable and _order(x) is not None and _library() is not None


def ghost_forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    bounds: Sequence[tuple[int, int]],
    eps: float,
    channel_groups: int | None = None,
    *,
    y: Tensor | None = None,
) -> Groups | None:
    """Each group of examples, and of channels, normalised by itself, into `y` if it is given."""
    library, order = _library(), _order(x)
    if library is None or order is None or x.dim() < 2 or not _contiguous(weight, bias):
        return None
    if (places := _places(x, weight, bias)) is None:
        return None
    channels, edges = x.shape[1], _edges(bounds)
    mean, var = x.new_empty((2, len(bounds), channels))
    centre, inverse = x.new_empty((2, len(bounds), channel_groups or channels))
    groups = Groups(torch.empty_like(x) if y is None else y, mean, var, centre, inverse)
    job = _Ghost(
        places[0], groups.y.data_ptr(), channels, x.shape[2:].numel(), channels // centre.shape[1],
        ctypes.addressof(edges), len(bounds), *places[1:], eps, *(t.data_ptr() for t in groups[1:]),
    )  # fmt: skip
    kernel = library.ghost_forward_rows if order == "rows" else library.ghost_forward_columns
    return None if kernel(job, torch.get_num_threads()) else groups


def ghost_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bounds: Sequence[tuple[int, int]],
    centre: Tensor,
    inverse: Tensor,
    *,
    grad_x: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Gradients of `ghost_forward` for input, into `grad_x` if it is given, weight and bias."""
    library, order = _library(), _order(x)
    if library is None or order is None or not _plain(grad, x, weight) or not _contiguous(weight):
        return None
    if order == "rows":
        grad = grad.contiguous()
    elif grad.stride() != x.stride():
        grad = torch.empty_like(x).copy_(grad)
    grad_x, channels = torch.empty_like(x) if grad_x is None else grad_x, x.shape[1]
    of_affine = x.new_empty((2, len(bounds), channels))
    edges, address = _edges(bounds), of_affine.data_ptr()
    job = _Ghost(
        x.data_ptr(), None, channels, x.shape[2:].numel(), channels // centre.shape[1],
        ctypes.addressof(edges), len(bounds), _address(weight), None, 0.0, None, None,
        *(t.data_ptr() for t in (centre, inverse, grad, grad_x)), address, address + 4 * len(bounds) * channels,
    )  # fmt: skip
    kernel = library.ghost_backward_rows if order == "rows" else library.ghost_backward_columns
    return None if kernel(job, torch.get_num_threads()) else (grad_x, *of_affine.sum(1))


def updated_running(
    mean: Tensor,
    var: Tensor,
    bounds: Sequence[tuple[int, int]],
    running_mean: Tensor,
    running_var: Tensor,
    factor: float,
) -> Tensor | None:
    """Running moments (2, C) moved by `factor` towards the moments of all groups, (G, C) each, together."""
    library, places = _library(), _places(mean, var, running_mean, running_var)
    if library is None or places is None or not _contiguous(mean, var, running_mean, running_var):
        return None
    updated, edges = mean.new_empty((2, mean.shape[1])), _edges(bounds)
    library.ghost_running(
        *places[:2], ctypes.addressof(edges), *mean.shape, *places[2:], factor, updated.data_ptr()
    )  # fmt: skip
    return updated


def is_dense(x: Tensor) -> bool:
    """Whether a tensor's memory is in one of the orders that kernels know."""
    return _order(x) is not None


def _order(x: Tensor) -> str | None:
    """Whether the positions of a channel are side by side, "rows", or the channels of a position, "columns"."""
    if x.is_contiguous():
        return "columns" if x.numel() == x.shape[0] * x.shape[1] else "rows"
    return "columns" if x.is_contiguous(memory_format=_CHANNELS_LAST.get(x.dim(), torch.contiguous_format)) else None


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _edges(bounds: Sequence[tuple[int, int]]) -> ctypes.Array[ctypes.c_ssize_t]:
    return (ctypes.c_ssize_t * (len(bounds) + 1))(0, *(stop for _, stop in bounds))


def _plain(*tensors: Tensor | None) -> bool:
    """Whether a kernel may read all, or any of them that are empty."""
    return _places(*(t for t in tensors if t is None or t.numel())) is not None


def _places(*tensors: Tensor | None) -> list[int | None] | None:
    """Where ordinary float32 tensors are on the CPU; None if a kernel may not read one or a gradient is wanted."""
    if being_watched():
        return None
    recording = torch.is_grad_enabled()
    places: list[int | None] = []
    for t in tensors:  # as `ordinary`, but of real numbers only, which is quicker
        if t is None:
            places.append(None)
            continue
        if (type(t) is not Tensor and type(t) is not Parameter) or t.dtype is not float32 or t.layout is not strided:
            return None
        if not t.is_cpu or t.is_neg() or (recording and t.requires_grad):
            return None
        place = t.data_ptr()
        if not place:  # nothing, or zeros that were never written to memory
            return None
        places.append(place)
    return places


def _contiguous(*tensors: Tensor | None) -> bool:
    for t in tensors:  # noqa: SIM110  (a generator takes longer than all the rest)
        if t is not None and not t.is_contiguous():
            return False
    return True
