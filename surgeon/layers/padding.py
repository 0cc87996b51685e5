"""Where a batch is padding: positions that no unit takes moments of, and that all of them leave as they are.

A network says so around what it computes, so that nothing else has to know of masks:

    def forward(self, words):
        with surgeon.padding(words.eq(0).all(1)):
            return self.head(self.features(words).amax(-1))

Features may have fewer positions than the mask, after strides and pooling: a position is padding if all that it
stands for are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from surgeon.core.errors import SurgeonError
from surgeon.layers import native
from surgeon.layers.recomputation import recomputing

_MASK: ContextVar[Tensor | None] = ContextVar("padding", default=None)
_POOLS = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


@contextmanager
def padding(mask: Tensor | None) -> Iterator[None]:
    """Within this block, inserted units take no moments of padding, and leave it as it is.

    It concerns crossnorm, selfnorm and moex. BatchNorm and its rewrites go on to count all positions, as they were
    trained to.

    Args:
        mask: (N, L), or (N, …) with the positions of the features; true at padding, as torch's key_padding_mask.
            None: there is none.

    Examples:
        >>> with surgeon.padding(words.eq(0).all(1)):
        ...     logits = network(words)
    """
    if mask is not None and (mask.dtype != torch.bool or mask.dim() < 2):
        raise SurgeonError(
            f"A padding mask has shape (N, positions) and is true or false, not {mask.dtype} of {tuple(mask.shape)}."
        )
    token = _MASK.set(mask)
    try:
        yield
    finally:
        _MASK.reset(token)


class Padding:
    """What one unit knows of padding: activation checkpointing repeats its forward when the block is over."""

    def __init__(self) -> None:
        self._last: Tensor | None = None

    def of(self, x: Tensor) -> Tensor | None:
        """The mask for features (N, C, …) in this forward, or in the recomputation of it; None: there is none."""
        if native.being_watched():  # a compiled network recomputes by itself what it has traced
            mask = _MASK.get()
            return None if mask is None else _fitted(mask, x)
        if not recomputing():
            self._last = _MASK.get()
        return None if self._last is None else _fitted(self._last, x)

    def __deepcopy__(self, memo: dict[int, Any]) -> Padding:
        """A copy of a network has seen no batch."""
        return Padding()

    def __reduce__(self) -> tuple[Any, ...]:
        return Padding, ()


def _fitted(mask: Tensor, x: Tensor) -> Tensor:
    positions = x.shape[2:]
    mask = mask.to(x.device)
    if mask.shape == (len(x), *positions):
        return mask
    fewer = len(mask.shape) == len(positions) + 1 and all(
        few <= many for few, many in zip(positions, mask.shape[1:], strict=True)
    )
    if len(mask) != len(x) or not fewer or len(positions) not in _POOLS:
        raise SurgeonError(
            f"A padding mask of shape {tuple(mask.shape)} does not fit features of shape {tuple(x.shape)}.",
            "It has one row per example, and at least as many positions as the features.",
        )
    valid = _POOLS[len(positions)]((~mask)[:, None].float(), tuple(positions))
    return valid[:, 0] == 0
