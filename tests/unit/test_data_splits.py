"""Stratified parts: every class has its share, and the same call gives the same images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon.core.errors import SurgeonError
from surgeon.data.stratified import halves, limit, per_class

label_lists = st.lists(st.integers(0, 7), min_size=1, max_size=200)


@settings(deadline=None)
@given(labels=label_lists, n=st.integers(1, 250), seed=st.integers(0, 5))
def test_every_class_has_its_proportional_share(labels: list[int], n: int, seed: int) -> None:
    chosen = limit(labels, n, seed)
    assert len(chosen) == min(n, len(labels))
    assert np.array_equal(chosen, np.unique(chosen))
    assert np.array_equal(chosen, limit(labels, n, seed))
    for label in set(labels):
        share = labels.count(label) * min(n, len(labels)) / len(labels)
        assert abs((np.array(labels)[chosen] == label).sum() - share) < 1


@settings(deadline=None)
@given(labels=label_lists.filter(lambda labels: len(labels) > 1), seed=st.integers(0, 5))
def test_halves_are_disjoint_complete_and_balanced(labels: list[int], seed: int) -> None:
    first, second = halves(labels, seed)
    assert sorted([*first, *second]) == list(range(len(labels)))
    assert 0 <= len(first) - len(second) <= 1
    for label in set(labels):
        in_first, in_second = (int((np.array(labels)[half] == label).sum()) for half in (first, second))
        assert abs(in_first - in_second) <= 1


def test_a_limit_below_the_number_of_classes_does_not_take_the_first_classes() -> None:
    chosen = limit(np.arange(1000), 100)
    assert len(chosen) == 100
    assert chosen.max() > 900


def test_another_seed_takes_other_images() -> None:
    assert not np.array_equal(limit([0] * 100, 10, seed=0), limit([0] * 100, 10, seed=1))


@pytest.mark.parametrize("n", [0, -3])
def test_a_limit_of_nothing_is_refused(n: int) -> None:
    with pytest.raises(SurgeonError, match="at least 1"):
        limit([0, 1], n)


def test_one_image_cannot_be_halved() -> None:
    with pytest.raises(SurgeonError, match="1 image cannot be halved"):
        halves([0])


def test_fixed_numbers_per_class() -> None:
    labels = [0] * 9 + [1] * 7
    parts = per_class(labels, (3, 1, 2))
    assert [np.bincount(np.array(labels)[part]).tolist() for part in parts] == [[3, 3], [1, 1], [2, 2]]
    assert len(np.unique(np.concatenate(parts))) == 12
    with pytest.raises(SurgeonError, match="class 1 has 7 images, but the split rule takes 8"):
        per_class(labels, (4, 4))
