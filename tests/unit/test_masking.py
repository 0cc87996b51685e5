"""Checks for masked gradients: which are made, and when they fail."""

from __future__ import annotations

from math import comb

import pytest

from surgeon.conditions.attacks.masking import Expectation, MaskingCheck, at_least, masking_checks

IMAGES = 100


def right(count: int, first: int = 0) -> list[bool]:
    """So many images of a hundred, from the first on."""
    return [first <= number < first + count for number in range(IMAGES)]


def found(**counts: int) -> dict[Expectation, MaskingCheck]:
    names = {
        "clean": "clean", "fgsm": "fgsm", "pgd": "pgd", "zero": "pgd:eps=0", "large": "pgd:eps=0.06",
        "long": "pgd:steps=40", "spsa": "spsa", "transfer": "pgd:source=other",
    }  # fmt: skip
    checks = masking_checks({names[key]: right(count) for key, count in counts.items()})
    return {check.expectation: check for check in checks}


def test_an_ordinary_network_passes_all() -> None:
    checks = found(clean=92, fgsm=30, pgd=5, large=1, zero=92, spsa=28, transfer=40) | found(pgd=5, long=4)
    assert set(checks) == set(Expectation)
    assert all(check.passed for check in checks.values())
    check = checks[Expectation.ITERATED]
    assert (check.weaker, check.stronger, check.accuracies) == ("fgsm", "pgd", (30, 5))


@pytest.mark.parametrize(
    ("counts", "expectation"),
    [
        ({"clean": 92, "zero": 91}, Expectation.NOTHING_CHANGED),
        ({"pgd": 30, "large": 45}, Expectation.LARGER_EPS),
        ({"pgd": 30, "long": 45}, Expectation.MORE_STEPS),
        ({"pgd": 45, "fgsm": 30}, Expectation.ITERATED),
        ({"pgd": 45, "spsa": 30}, Expectation.GRADIENTS),
        ({"pgd": 45, "transfer": 30}, Expectation.WHITE_BOX),
    ],
)
def test_an_attack_that_should_be_stronger_and_is_not_is_found(
    counts: dict[str, int], expectation: Expectation
) -> None:
    assert not found(**counts)[expectation].passed


def test_what_may_be_noise_passes() -> None:
    assert found(pgd=30, long=34)[Expectation.MORE_STEPS].passed  # four images of a hundred: 1/16
    assert found(pgd=30, long=34)[Expectation.MORE_STEPS].probability == 1 / 16
    moved = masking_checks({"pgd": right(30), "pgd:steps=40": right(33, 10)})  # 13 against 10
    assert moved[0].probability == pytest.approx(at_least(13, 23))
    assert moved[0].passed


def test_only_what_has_to_be_stronger_is_compared() -> None:
    assert masking_checks({"clean": right(90), "pgd": right(10), "gaussian-noise:severity=3": right(50)}) == []
    assert masking_checks({"pgd:steps=1,step=0.001": right(80), "fgsm": right(30), "spsa": right(30)}) == []
    assert masking_checks({"pgd:eps=0.06,steps=40": right(5), "pgd": right(3)}) == []
    assert masking_checks({}) == []
    assert masking_checks({"clean": [], "pgd:eps=0": []})[0].passed


def test_the_probability_is_that_of_a_fair_coin() -> None:
    assert at_least(0, 0) == 1
    assert at_least(3, 4) == (comb(4, 3) + 1) / 16
    assert at_least(1500, 2000) < 1e-100
