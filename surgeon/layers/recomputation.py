"""Activation checkpointing runs parts of a network again within the backward pass: they have to draw the same again.

Checkpointing itself sets torch's generator back; a unit sets back what is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from surgeon.core.private import current_backward


def recomputing() -> bool:
    """Whether this forward is a part of a backward pass."""
    return current_backward() is not None


class Repeatable:
    """What a unit draws in a forward, and draws again in its recomputation."""

    def __init__(self) -> None:
        self._before: Tensor | None = None

    @contextmanager
    def drawing(self, generator: torch.Generator | None) -> Iterator[None]:
        """Within this block, a recomputation has the generator as the unit's last forward had it."""
        if generator is None:
            yield
        elif not recomputing() or self._before is None:
            self._before = generator.get_state()
            yield
        else:
            now = generator.get_state()
            generator.set_state(self._before)
            try:
                yield
            finally:
                generator.set_state(now)
