"""Which of two branches a network takes: main, auxiliary, or one for each half of a batch.

All layers of a network share one router, and the router keeps its state in a context variable of its
own. So neither two networks nor two threads that use the same network can change each other's branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any


class Branch(StrEnum):
    """Where the examples of a batch go."""

    MAIN = "main"
    AUXILIARY = "aux"
    HALVES = "halves"


class Router:
    """The branch that one network takes, in this thread."""

    def __init__(self) -> None:
        self._branch: ContextVar[Branch] = ContextVar("branch", default=Branch.MAIN)

    @property
    def branch(self) -> Branch:
        return self._branch.get()

    @contextmanager
    def taking(self, branch: Branch) -> Iterator[None]:
        """Within this block, the network takes another branch."""
        before = self._branch.set(branch)
        try:
            yield
        finally:
            self._branch.reset(before)

    def __deepcopy__(self, memo: dict[int, Any]) -> Router:
        """A copy of a network has a router of its own, shared by the copies of its layers."""
        return Router()

    def __reduce__(self) -> tuple[Any, ...]:
        return Router, ()
