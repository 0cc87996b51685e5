"""One process or several: the same work, shared by `torchrun` or `accelerate launch`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from surgeon.core.errors import SurgeonError

T = TypeVar("T")


def launched_processes() -> int:
    """How many processes were launched together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_process() -> bool:
    """Whether this process is the one that speaks and writes."""
    return launched_processes() == 1 or os.environ.get("RANK", "0") == "0"


@dataclass(frozen=True)
class Processes:
    """The processes that share the work."""

    rank: int = 0
    count: int = 1

    @classmethod
    def launched(cls) -> Processes:
        """Join those that were launched together."""
        if launched_processes() == 1:
            return cls()
        import torch
        from accelerate import PartialState

        state = PartialState(cpu=not torch.cuda.is_available())  # which accelerate does not find out under torchrun
        if state.num_processes != launched_processes():
            raise SurgeonError(
                f"{launched_processes()} processes were launched, but only {state.num_processes} connected."
            )
        return cls(state.process_index, state.num_processes)

    def gather(self, compute: Callable[[], T]) -> list[T]:
        """What every process computes, known to all. If one fails, all fail with its error, and none waits forever."""
        if self.count == 1:
            return [compute()]
        from accelerate.utils import gather_object

        try:
            mine: T | SurgeonError = compute()
        except SurgeonError as error:
            mine = error
        everyones = cast("list[Any]", gather_object([mine]))
        for answer in everyones:
            if isinstance(answer, SurgeonError):
                raise answer
        return everyones

    def from_first(self, compute: Callable[[], T]) -> T:
        """What the first process computes, known to all."""
        return self.gather(lambda: compute() if self.rank == 0 else cast("T", None))[0]

    def only_first(self, compute: Callable[[], T]) -> T | None:
        """What the first process computes, if this is it; its errors reach all."""
        mine: list[T] = []
        self.gather(lambda: mine.append(compute()) if self.rank == 0 else None)
        return mine[0] if mine else None
