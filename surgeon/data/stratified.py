"""Parts of a labelled set: stratified, seeded, and the same in every run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from surgeon.core.errors import SurgeonError, count

Indices: TypeAlias = npt.NDArray[np.int64]


def limit(labels: npt.ArrayLike, n: int, seed: int = 0) -> Indices:
    """Indices of at most `n` examples in which every class has its proportional share."""
    labels = np.asarray(labels)
    if n < 1:
        raise SurgeonError(f"A set cannot be limited to {count(n, 'image')}.", "Give a limit of at least 1.")
    if n >= len(labels):
        return np.arange(len(labels), dtype=np.int64)
    random = np.random.default_rng(seed)
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    shares = _apportion(sizes, n, random)
    chosen = [random.permutation(own)[:share] for own, share in zip(_by_class(classes, sizes), shares, strict=True)]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def halves(labels: npt.ArrayLike, seed: int = 0) -> tuple[Indices, Indices]:
    """Two disjoint halves of a set that hold every class in equal shares; the first is the larger one."""
    size = len(np.asarray(labels))
    if size < 2:
        raise SurgeonError(f"A set of {count(size, 'image')} cannot be halved.", "Use more images.")
    first = limit(labels, (size + 1) // 2, seed)
    return first, rest(size, first)


def rest(size: int, taken: Indices) -> Indices:
    """The indices below `size` that are not taken."""
    return np.setdiff1d(np.arange(size, dtype=np.int64), taken)


def per_class(labels: npt.ArrayLike, sizes: Sequence[int], seed: int = 0) -> tuple[Indices, ...]:
    """Disjoint parts that hold the given numbers of examples of every class."""
    labels = np.asarray(labels)
    random = np.random.default_rng(seed)
    edges = np.cumsum([0, *sizes])
    chosen: list[list[Indices]] = [[] for _ in sizes]
    names, classes, numbers = np.unique(labels, return_inverse=True, return_counts=True)
    for label, own in zip(names, _by_class(classes, numbers), strict=True):
        of_class = random.permutation(own)
        if len(of_class) < edges[-1]:
            raise SurgeonError(
                f"The class {label} has {count(len(of_class), 'image')}, but the split rule takes {edges[-1]} of each."
            )
        for part, (first, last) in zip(chosen, pairwise(edges), strict=True):
            part.append(of_class[first:last])
    return tuple(np.sort(np.concatenate(part)).astype(np.int64) for part in chosen)


def _by_class(classes: Indices, sizes: npt.NDArray[np.int64]) -> list[Indices]:
    """The indices of each class in order, without going through all examples once per class."""
    return np.split(np.argsort(classes, kind="stable"), np.cumsum(sizes)[:-1])


def _apportion(sizes: npt.NDArray[np.int64], n: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Whole shares of `n` in proportion to the sizes, by largest remainders."""
    exact = sizes * n / sizes.sum()
    shares: npt.NDArray[np.int64] = np.floor(exact).astype(np.int64)
    # Ties are broken at random: with one image per class, the first classes must not be the only ones chosen.
    by_remainder = np.lexsort((random.permutation(len(sizes)), shares - exact))
    shares[by_remainder[: n - shares.sum()]] += 1
    return shares
