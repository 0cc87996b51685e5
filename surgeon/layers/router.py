"""Which of two branches a network takes: main, auxiliary, or one for each half of a batch.

All layers of a network share one router, and the router keeps its state in a context variable of its
own. So neither two networks nor two threads that use the same network can change each other's branch.

Activation checkpointing runs parts of a network again within the backward pass, after the block that asked for a
branch, and on a GPU in a thread of autograd's. The node of the graph that is waiting for the result was made by the
first pass, and autograd numbers nodes as they are made: so the router notes from which number on which branch was
taken, and a recomputation looks up that of its node.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any

from surgeon.core.private import after_backward, asking_node, current_backward, next_node
from surgeon.layers import native
from surgeon.layers.recomputation import recomputing

KEPT = 4096
"""Changes of branch that are remembered in each thread: far more than forward passes wait for a backward pass."""


class Branch(StrEnum):
    """Where the examples of a batch go."""

    MAIN = "main"
    AUXILIARY = "aux"
    HALVES = "halves"


class _Changes:
    """From which node on which branch was taken, in the forward passes of one thread."""

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.branches: list[Branch] = []

    def note(self, branch: Branch) -> None:
        if len(self.nodes) >= KEPT:
            del self.nodes[: KEPT // 2], self.branches[: KEPT // 2]
        self.nodes.append(next_node())
        self.branches.append(branch)

    def at(self, node: int) -> Branch:
        return self.branches[max(bisect_right(self.nodes, node), 1) - 1]


class Router:
    """The branch that one network takes, in this thread."""

    def __init__(self) -> None:
        self._branch: ContextVar[Branch | None] = ContextVar("branch", default=None)
        self._changes: dict[int, _Changes] = {}
        self._recomputed: dict[int, tuple[int | None, Branch]] = {}
        self._everywhere: Branch | None = None
        self._last_everywhere: Branch | None = None

    @property
    def branch(self) -> Branch:
        """The branch for the layer that asks, in a forward pass or in the recomputation of one."""
        if native.being_watched():  # a compiled network recomputes by itself what it has traced
            return self._asked_for()
        if recomputing():
            return self._of_first_pass()
        self._recomputed.clear()
        if self._everywhere is None and threading.get_ident() not in self._changes:
            self._note(self._asked_for())
        return self._asked_for()

    def _asked_for(self) -> Branch:
        return self._branch.get() or self._everywhere or Branch.MAIN

    def _of_first_pass(self) -> Branch:
        if self._last_everywhere is not None:  # the passes of threads that are gone
            return self._last_everywhere
        thread, backward = threading.get_ident(), current_backward()
        if thread in self._recomputed and self._recomputed[thread][0] != backward:
            return self._recomputed[thread][1]  # a backward pass within a recomputation: its nodes are new ones
        changes = self._changes.get(thread) or next(iter(self._changes.values()), None)
        node = asking_node()
        branch = self._asked_for() if changes is None or node is None else changes.at(node)
        if thread not in self._recomputed:
            after_backward(self._recomputed.clear)
        self._recomputed[thread] = backward, branch
        return branch

    def _note(self, branch: Branch) -> None:
        self._changes.setdefault(threading.get_ident(), _Changes()).note(branch)

    @contextmanager
    def taking(self, branch: Branch, everywhere: bool = False) -> Iterator[None]:
        """Within this block the network takes another branch: in this thread, or everywhere, in new threads as well.

        A recomputation of what was run everywhere takes the branch of the last such block.
        """
        before, self._last_everywhere = self._everywhere, branch if everywhere else None
        if everywhere:
            self._everywhere = branch
        token = self._branch.set(branch)
        self._note(branch)
        try:
            yield
        finally:
            self._branch.reset(token)
            self._everywhere = before
            self._note(self._asked_for())

    def __deepcopy__(self, memo: dict[int, Any]) -> Router:
        """A copy of a network has a router of its own, shared by the copies of its layers."""
        return Router()

    def __reduce__(self) -> tuple[Any, ...]:
        return Router, ()
