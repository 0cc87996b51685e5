"""How long work says how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Somebody who watches."""

    def __call__(self, doing: str, done: int, total: int, remark: str = "", /) -> None:
        """Hear of a step.

        Args:
            doing: What is being done; it may change from one phase to the next.
            done: How much of it is done.
            total: How much there is.
            remark: What else there is to say.
        """


def say_nothing(doing: str, done: int, total: int, remark: str = "", /) -> None:
    """For those who do not want to watch."""
