"""Several data sets as one: `union:mnist+cifar10`. The classes of all of them, each called by its set: `mnist/3`.

So one network can be trained for several tasks at once. A union of one set is that set under these names: it measures
such a network on one of its tasks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from surgeon.core.errors import SurgeonError, listing
from surgeon.data.images import EncodedImages, ImageSet
from surgeon.data.named_splits import VALIDATION_NAMES

UNION = "union:"
FORM = "Write union:DATA+DATA, e.g. union:mnist+cifar10; write ++ for a + in a path."
_PART = re.compile(r"(?:\+\+|[^+])*")
"""What stands between two single pluses."""


def parts_of(spec: str) -> tuple[str, ...]:
    """The data sets that a union names."""
    rest, found = spec.removeprefix(UNION), list[str]()
    while True:
        part = _PART.match(rest)
        assert part is not None  # it matches nothing, too
        found.append(part[0].replace("++", "+").strip())
        if part.end() == len(rest):
            break
        rest = rest[part.end() + 1 :]
    if not all(found):
        raise SurgeonError(f"{spec!r} has a part without a name.", FORM)
    if nested := [part for part in found if part.startswith(UNION)]:
        raise SurgeonError(f"A union cannot hold another one: {nested[0]!r}.", FORM)
    return tuple(found)


def union_of(parts: Sequence[ImageSet]) -> ImageSet:
    """The images of all parts, one after the other, with the classes of all.

    Args:
        parts: The same split of each set, with labels.
    """
    _check(parts)
    classes = [f"{part.name}/{name}" for part in parts for name in part.class_names]
    firsts = _ends([len(part.class_names) for part in parts])
    labels = np.concatenate([part.labels + first for part, first in zip(parts, firsts, strict=False)])
    return type(parts[0]).over(JoinedImages(parts), labels, classes, name=_name(parts), split=parts[0].split)


def unlabelled_union_of(parts: Sequence[ImageSet]) -> ImageSet:
    """The images of all parts, all of class 0."""
    _check(parts)
    nothing = np.zeros(sum(map(len, parts)), dtype=np.int64)
    return type(parts[0]).over(
        JoinedImages(parts), nothing, ["0"], name=_name(parts), split=parts[0].split, names_known=False
    )


def _name(parts: Sequence[ImageSet]) -> str:
    return "+".join(part.name for part in parts)


def _check(parts: Sequence[ImageSet]) -> None:
    names = [part.name for part in parts]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise SurgeonError(
            f"The union contains several sets named {twice[0]!r}, so their classes would be ambiguous.",
            "Name each set once; of two folders of the same name, rename one.",
        )
    if len({part.medium for part in parts}) > 1:
        told = listing(f"{part.name!r} holds {part.medium.samples}" for part in parts)
        raise SurgeonError(f"A union needs data of one kind: {told}.", "Name sets of one kind.")
    if restricted := [part.name for part in parts if part.outputs is not None]:
        raise SurgeonError(f"{restricted[0]!r} holds some of ImageNet's classes, and cannot be part of a union.")
    if len({"validation" if part.split in VALIDATION_NAMES else part.split for part in parts}) > 1:
        told = listing(f"{part.split!r} of {part.name!r}" for part in parts)
        raise SurgeonError(
            f"The sets of the union do not have the same splits: {told}.",
            "Pass --split with one that all of them have.",
        )


def _ends(sizes: Sequence[int]) -> list[int]:
    """Where each part begins, and the end of the last."""
    return [0, *np.cumsum(sizes).tolist()]


class JoinedImages:
    """The images of several sets, one set after the other."""

    def __init__(self, parts: Sequence[ImageSet]) -> None:
        self._starts = _ends([len(part) for part in parts])
        self._sources: list[EncodedImages] = [part.encoded for part in parts]
        self._positions = [part.positions for part in parts]
        self._names = [part.name for part in parts]

    def read(self, position: int) -> bytes:
        number, place = self._locate(position)
        return self._sources[number].read(place)

    def identity(self, position: int) -> str:
        number, place = self._locate(position)
        return f"{self._sources[number].identity(place)} of {self._names[number]}"

    def _locate(self, position: int) -> tuple[int, int]:
        """Which source, and the position in it."""
        number = int(np.searchsorted(self._starts, position, side="right")) - 1
        return number, int(self._positions[number][position - self._starts[number]])
