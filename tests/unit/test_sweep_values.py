"""Values to sweep, as people write them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.measuring.values import MOST_VALUES, checked, evenly_spaced, parse_priors, parse_values


def parsed(text: str) -> tuple[float, ...]:
    return parse_values(text, "--alpha")


def test_a_range_gives_the_numbers_that_people_would_write() -> None:
    assert parsed("0:0.2:21") == tuple(float(f"0.{hundredths:02d}") for hundredths in range(21))
    assert parsed("0:0.8:9") == (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    assert [repr(value) for value in parsed("0:0.3:4")] == ["0.0", "0.1", "0.2", "0.3"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.05", (0.05,)),
        ("0,0.01,0.05", (0, 0.01, 0.05)),
        (" 0.1 , 0.2 ", (0.1, 0.2)),
        ("1e-3,.5,1", (0.001, 0.5, 1)),
        ("0.3:0.9:1", (0.3,)),
        ("0:1:2", (0, 1)),
        ("0.4:0.4:1", (0.4,)),
    ],
)
def test_single_values_and_short_ranges(text: str, expected: tuple[float, ...]) -> None:
    assert parsed(text) == expected


@pytest.mark.parametrize("text", ["0.2,0,0.1", "0.1,0.2,0.1,0,0.2", "0.2:0:3", "0,0.1,0.10,1e-1,0.2"])
def test_values_come_in_ascending_order_and_once_each(text: str) -> None:
    assert parsed(text) == (0, 0.1, 0.2)


def test_equal_ends_are_one_value() -> None:
    assert parsed("0.4:0.4:5") == (0.4,)


def test_minus_zero_is_zero() -> None:
    (value,) = parsed("-0")
    assert math.copysign(1, value) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a",
        "0:0.2",
        "0:0.2:21:3",
        "0:0.2:",
        "::",
        ":",
        "0:0.2:2.5",
        "0:0.2:1e3",
        "0:0.2:x",
        "0:0.2:0",
        "0:0.2:-3",
        "0,0.1,",
        ",",
        "0;0.1",
        "0..0.2",
        "0:0.2:3,0.5",
    ],
)
def test_what_is_neither_a_range_nor_values_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(SurgeonError) as caught:
        parsed(text)
    assert caught.value.exit_code == ExitCode.USAGE
    assert f"--alpha cannot be {text!r}" in caught.value.message
    assert "FROM:TO:COUNT" in caught.value.hint


@pytest.mark.parametrize("text", ["-0.1", "1.01", "0:2:3", "-1:1:3", "nan", "inf", "-inf", "0,nan,1", "0:inf:3"])
def test_what_is_no_weight_between_0_and_1_is_refused(text: str) -> None:
    with pytest.raises(SurgeonError, match=r"--alpha cannot be .*: it must lie between 0 and 1"):
        parsed(text)


def test_the_first_wrong_value_is_named() -> None:
    with pytest.raises(SurgeonError, match=r"cannot be 1\.5:"):
        parsed("0,1.5,7")


@pytest.mark.parametrize("count", [MOST_VALUES + 1, 10**6, 10**30])
def test_huge_counts_are_refused_at_once(count: int) -> None:
    with pytest.raises(SurgeonError, match="cannot be"):
        parsed(f"0:1:{count}")


def test_the_largest_count_is_taken() -> None:
    values = parsed(f"0:1:{MOST_VALUES}")
    assert len(values) == MOST_VALUES
    assert values[:2] + values[-2:] == (0, 0.001, 0.999, 1)


def test_values_from_python_may_be_any_iterable() -> None:
    given: list[Iterable[float]] = [(0, 1), {1, 0}, iter([1, 0, 1]), range(2), (n / 1 for n in (0, 1))]
    assert {checked(values, "alphas") for values in given} == {(0.0, 1.0)}
    with pytest.raises(SurgeonError, match="alphas names 0 values"):
        checked([], "alphas")


@settings(max_examples=50, deadline=None)
@given(first=st.integers(0, 1000), last=st.integers(0, 1000), number=st.integers(2, 200))
def test_ranges_keep_their_ends_their_number_and_their_spacing(first: int, last: int, number: int) -> None:
    values = evenly_spaced(first / 1000, last / 1000, number)
    assert (values[0], values[-1], len(values)) == (first / 1000, last / 1000, number)
    step = (last - first) / 1000 / (number - 1)
    for before, after in pairwise(values):
        assert after - before == pytest.approx(step, abs=2e-10)


def test_priors_are_numbers_of_images() -> None:
    assert parse_priors("64,inf,0,16", "--prior") == (0.0, 16.0, 64.0, math.inf)
    for text in ("many", "-5,2", "nan", ""):
        with pytest.raises(SurgeonError, match=r"--prior cannot be .* numbers of images, e\.g\. 0,16,64,256,1024,inf"):
            parse_priors(text, "--prior")
