"""Signs of masked gradients: an attack that has to be the stronger one, and is not.

A. Athalye, N. Carlini and D. Wagner, Obfuscated Gradients Give a False Sense of Security, ICML 2018. A network on which
larger eps, more steps or gradients do not help an attack is not robust: the attack has failed, and another may not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from math import comb

from surgeon.conditions.attack import AttackConfig, IterativeConfig
from surgeon.conditions.base import Asked, ask

LEVEL = 0.01
"""A stronger attack counts as the weaker one below this probability, by an exact one-sided sign test."""


class Expectation(StrEnum):
    """Why one attack has to be at least as strong as another."""

    NOTHING_CHANGED = "eps = 0 equals clean"
    LARGER_EPS = "larger eps is not weaker"
    MORE_STEPS = "more steps are not weaker"
    ITERATED = "PGD is not weaker than FGSM"
    GRADIENTS = "PGD is not weaker than SPSA"
    WHITE_BOX = "attacking the network is not weaker than transfer"


@dataclass(frozen=True)
class MaskingCheck:
    """Two conditions on the same images, of which `stronger` may not leave the higher accuracy beyond noise.

    Args:
        expectation: Why.
        weaker: The condition that may leave the higher accuracy.
        stronger: The one that may not.
        accuracies: Of both, in percent.
        probability: Of a difference like this or larger if both were equally strong.
        passed: Whether it is as expected.
    """

    expectation: Expectation
    weaker: str
    stronger: str
    accuracies: tuple[float, float]
    probability: float
    passed: bool


def masking_checks(right: Mapping[str, Sequence[bool]]) -> list[MaskingCheck]:
    """All checks that the measured conditions allow.

    Args:
        right: For each condition, by the name of what was asked for (`clean`, `pgd:eps=0.06`), whether each image was
            classified rightly; the same images in the same order.
    """
    attacks = {name: asked for name in right for asked in ask([name]) if isinstance(asked.config, AttackConfig)}
    found = [
        _check(Expectation.NOTHING_CHANGED, "clean", name, right)
        for name, asked in attacks.items()
        if "clean" in right and _eps(asked) == 0
    ]
    for pair in combinations(attacks, 2):
        for weaker, stronger in (pair, pair[::-1]):
            found += [
                _check(expectation, weaker, stronger, right)
                for expectation in _expectations(attacks[weaker], attacks[stronger])
            ]
    return found


def _expectations(weaker: Asked, stronger: Asked) -> Iterator[Expectation]:
    names = weaker.condition.name, stronger.condition.name
    differing = _differing(weaker, stronger)
    if names[0] == names[1]:
        if differing == {"eps"} and _eps(weaker) < _eps(stronger):
            yield Expectation.LARGER_EPS
        if differing == {"steps"} and _steps(weaker) < _steps(stronger):
            yield Expectation.MORE_STEPS
        if differing == {"source"} and _source(stronger) is None:
            yield Expectation.WHITE_BOX
    elif names[1] == "pgd" and _eps(weaker) == _eps(stronger) > 0 and _source(weaker) == _source(stronger):
        # Only of the strongest PGD: one of few steps may well be weaker than SPSA.
        if names[0] == "fgsm" and _reaches_border(stronger):
            yield Expectation.ITERATED
        if names[0] == "spsa" and _reaches_border(stronger):
            yield Expectation.GRADIENTS


def _differing(one: Asked, other: Asked) -> set[str]:
    ours, theirs = dict(one.config), dict(other.config)
    return {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}


def _eps(asked: Asked) -> float:
    return asked.config.eps if isinstance(asked.config, AttackConfig) else 0.0


def _source(asked: Asked) -> str | None:
    return asked.config.source if isinstance(asked.config, AttackConfig) else None


def _steps(asked: Asked) -> int:
    return asked.config.steps if isinstance(asked.config, IterativeConfig) else 1


def _reaches_border(asked: Asked) -> bool:
    """Whether its steps lead from any start to any corner of the box."""
    config = asked.config
    return isinstance(config, IterativeConfig) and config.length * config.steps >= 2 * config.eps


def _check(expectation: Expectation, weaker: str, stronger: str, right: Mapping[str, Sequence[bool]]) -> MaskingCheck:
    pairs = [(bool(first), bool(second)) for first, second in zip(right[weaker], right[stronger], strict=True)]
    against, expected = pairs.count((False, True)), pairs.count((True, False))
    probability = at_least(against, against + expected)
    same = expectation is Expectation.NOTHING_CHANGED
    passed = against + expected == 0 if same else probability >= LEVEL
    accuracies = tuple(100 * sum(column) / max(len(pairs), 1) for column in zip(*pairs, strict=True)) or (0.0, 0.0)
    return MaskingCheck(expectation, weaker, stronger, (accuracies[0], accuracies[1]), probability, passed)


def at_least(heads: int, tosses: int) -> float:
    """The probability of at least so many heads of a fair coin."""
    ways = sum(comb(tosses, number) for number in range(heads, tosses + 1))
    return float(ways / 2**tosses)
