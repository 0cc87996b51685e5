"""A bound on what building a network may take: a file of a kilobyte must not ask for a terabyte of weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from surgeon.core.errors import SurgeonError
from surgeon.core.private import TorchDispatchMode

SLACK_BYTES = 1 << 28
MORE_THAN_ITS_FILE = 16
"""Weights in float16 or int8 are built in float32, initialisation takes copies, and some buffers are not stored."""
MOST_OPERATIONS = 1_000_000
BYTES = 4


class TooLargeError(SurgeonError):
    """A network is asked for that is far larger than the weights that are to fill it."""


@contextmanager
def bounded_by(weights_bytes: int | None) -> Iterator[None]:
    """Within this block, tensors can be made for a network with weights of so many bytes, not for a far larger one."""
    if weights_bytes is None:
        yield
        return
    with _Bound(SLACK_BYTES + MORE_THAN_ITS_FILE * weights_bytes):
        yield


class _Bound(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, most_bytes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.left = most_bytes // BYTES
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        self.left -= _new_elements(func, args)
        if self.left < 0 or self.operations > MOST_OPERATIONS:
            raise TooLargeError("The network would be far larger than its weights file.")
        return func(*args, **(kwargs or {}))


def _new_elements(func: Any, args: Sequence[Any]) -> int:
    """How many numbers an operation makes, before it does; those as large as what it works on are not counted."""
    tensors = [argument for argument in args if isinstance(argument, Tensor)]
    if not tensors:
        return _made_of_nothing(func, args)
    if len(tensors) < 2:
        return 0
    try:
        together = math.prod(torch.broadcast_shapes(*(tensor.shape for tensor in tensors)))  # type: ignore[no-untyped-call]
    except RuntimeError:  # they are not combined element by element
        return 0
    return together if together > max(tensor.numel() for tensor in tensors) else 0


def _made_of_nothing(func: Any, args: Sequence[Any]) -> int:
    if args and isinstance(args[0], list | tuple) and all(isinstance(size, int) for size in args[0]):
        return math.prod(args[0])
    numbers = [argument for argument in args if isinstance(argument, int | float) and math.isfinite(argument)]
    name = func.overloadpacket.__name__
    if name == "eye":
        return math.prod(int(number) for number in (numbers * 2)[:2])
    return int(max(map(abs, numbers), default=0)) if name in ("arange", "linspace", "range") else 0
