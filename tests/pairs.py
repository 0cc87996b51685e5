"""Cases in which every two values of different axes meet, instead of all of them with all.

Nearly every fault shows with two settings at once; the full product of many axes mostly repeats itself. Where three
settings do belong together, such as a rewrite, a mode and a layer, a test names their combinations as one axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest


def covering_cases(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Few cases, always the same, in which every pair of values of two axes occurs.

    Greedy: the next case is the one with most pairs that are still missing, the first of those in the order of the
    full product.
    """
    places = list(product(*(range(len(axis)) for axis in axes)))
    pairs = {place: _pairs_of(place) for place in places}
    missing = set().union(*pairs.values()) if places else set()
    chosen = []
    while missing:
        best = max(places, key=lambda place: len(pairs[place] & missing))
        missing -= pairs[best]
        chosen.append(best)
    return [tuple(axis[i] for axis, i in zip(axes, place, strict=True)) for place in sorted(chosen)]


def _pairs_of(place: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    return set(combinations(enumerate(place), 2))


def in_pairs(**axes: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrise a test by these axes, so that every two values of different axes meet."""
    return by_cases(tuple(axes), covering_cases(*axes.values()))


def by_cases(names: tuple[str, ...], cases: Sequence[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Parametrise a test by cases, named by their values; a tuple is a sum."""
    labels = ["-".join(" + ".join(value) if isinstance(value, tuple) else str(value) for value in c) for c in cases]
    return pytest.mark.parametrize(names, cases, ids=labels)
