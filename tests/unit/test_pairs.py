"""The covering cases of the contract tests cover what they promise."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.pairs import covering_cases


@pytest.mark.parametrize("sizes", [(3, 4), (2, 2, 2), (13, 4, 3), (5, 13, 3), (4, 3, 2, 5), (1, 3, 1)], ids=str)
def test_every_two_values_meet_in_few_cases_that_are_always_the_same(sizes: tuple[int, ...]) -> None:
    axes = [[f"{name}{value}" for value in range(size)] for name, size in zip("abcd", sizes, strict=False)]
    cases = covering_cases(*axes)
    for (i, first), (j, second) in combinations(enumerate(axes), 2):
        assert {(case[i], case[j]) for case in cases} == set(product(first, second))
    assert cases == covering_cases(*axes)
    assert len(cases) == len(set(cases))
    largest, second = sorted(sizes)[-1:-3:-1]
    assert len(cases) <= 1.5 * largest * second


def test_an_empty_axis_has_no_cases() -> None:
    assert covering_cases([1, 2], []) == []
