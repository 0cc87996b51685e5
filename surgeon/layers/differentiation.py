"""Derivatives of functions that are differentiated by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def differentiable_gradients(
    compute: Callable[..., Tensor], inputs: Sequence[Tensor | None], wanted: Sequence[bool], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of `compute(*inputs)` where they are to be differentiated again (`create_graph=True`).

    A derivative by hand is a constant to autograd, so here the function is computed anew by torch's operations.
    """
    with torch.enable_grad():
        sources = [t for t, needed in zip(inputs, wanted, strict=True) if t is not None and needed]
        found = iter(torch.autograd.grad(compute(*inputs), sources, grad, create_graph=True, materialize_grads=True))
    return tuple(next(found) if t is not None and needed else None for t, needed in zip(inputs, wanted, strict=True))
