"""Two swept numbers at once: every value of the one with every value of the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, product
from typing import Protocol, cast

from torch import Tensor

from surgeon.measuring.axes import Axis, Pair, Value

SEPARATOR = " × "
"""Between the names of both axes."""


class SingleAxis(Axis, Protocol):
    """A swept number."""

    @property
    def original(self) -> float: ...


class ProductAxis:
    """Pairs of values, of which the first is set for all pairs that have it in common.

    Both axes take one forward pass per value; what they change may lie in the same layers.
    """

    def __init__(self, first: SingleAxis, second: SingleAxis) -> None:
        self.first, self.second = first, second
        self.name = SEPARATOR.join((first.name, second.name))
        self.original: Pair = (first.original, second.original)

    def pairs(self, first: Iterable[float], second: Iterable[float]) -> tuple[Pair, ...]:
        """Every value with every other, those of the original among them, so that a table of them has no holes."""
        return tuple(
            product(sorted({*first, self.first.original}), sorted({*second, self.second.original}))
        )  # fmt: skip

    def logits(self, images: Tensor, values: Sequence[Value]) -> list[Tensor]:
        """The predictions for the same images at each pair."""
        predicted = []
        for first, pairs in groupby((cast("Pair", value) for value in values), lambda pair: pair[0]):
            self.first.set(first)
            predicted += self.second.logits(images, [second for _, second in pairs])
        return predicted

    def passes(self, values: int) -> int:
        """How often images go through the network for a number of pairs."""
        return values

    def set(self, value: Value) -> None:
        """Leave the network at a pair."""
        first, second = cast("Pair", value)
        self.first.set(first)
        self.second.set(second)

    def restore(self) -> None:
        """Leave the network as it was when the axes were made."""
        self.first.restore()
        self.second.restore()
