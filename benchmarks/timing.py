"""Times alternatives side by side, and reports figures to whoever runs the script and to the gate.

`best_times` and `report` suit most scripts; one that measures in another way calls `figure` for each of its results.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType, TracebackType

USUAL_NOISE = 0.05
"""Of figures that do not say how much they vary, relative."""
MOST_NOISE_OF_AIMS = 0.02
"""A network whose layers are unchanged comes out at up to 1.02 of itself."""
FILE, FAST = "SURGEON_BENCHMARK_FILE", "SURGEON_BENCHMARK_FAST"
"""Set by the gate: the file to which figures are appended; and that there is time only for the most telling figures."""


def fast() -> bool:
    """Whether the gate asks for its fast subset: leave figures out, but measure the others as always."""
    return FAST in os.environ


class Times(dict[str, float]):
    """The best time of each alternative in seconds, and how much its ratio to the first varied in this run."""

    def __init__(self, rounds: Mapping[str, list[float]]) -> None:
        super().__init__({name: min(seconds) for name, seconds in rounds.items()})
        self.noise = {name: self._noise(rounds, name) for name in rounds}

    @staticmethod
    def _noise(rounds: Mapping[str, list[float]], name: str) -> float:
        """How far apart the ratios of odd and of even rounds are."""
        base, own = next(iter(rounds.values())), rounds[name]
        if len(own) < 2:
            return USUAL_NOISE
        even, odd = (min(own[half]) / min(base[half]) for half in (slice(0, None, 2), slice(1, None, 2)))
        return abs(even - odd) / min(even, odd)


def best_times(alternatives: Mapping[str, Callable[[], object]], rounds: int) -> Times:
    """One of each alternative per round, so that a slow moment hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in alternatives}
    for run in alternatives.values():
        run()  # warm up
    for _ in range(rounds):
        for name, run in alternatives.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return Times(seconds)


@dataclass(frozen=True)
class Figure:
    """What a benchmark found, under a title and a name that are the same in every run."""

    title: str
    name: str
    value: float
    unit: str = "x"
    at_most: float | None = None
    at_least: float | None = None
    noise: float = USUAL_NOISE
    aim: float | None = None
    """Where the limit is what we can hold today: what we want, and have not reached."""

    @property
    def kept(self) -> bool:
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    @property
    def reached(self) -> bool:
        """Whether the aim is, if there is one, or cannot be told from it."""
        if self.aim is None:
            return True
        noise = min(self.noise, MOST_NOISE_OF_AIMS)
        return (
            self.value * (1 + noise) >= self.aim if self.at_least is not None else self.value <= self.aim * (1 + noise)
        )

    @property
    def limit(self) -> str:
        """As readers see it; empty if there is none."""
        for words, limit in (("at most", self.at_most), ("at least", self.at_least)):
            if limit is not None:
                aim = f", aim {shown(self.aim, self.unit)}" if self.aim is not None else ""
                return f"{words} {shown(limit, self.unit)}{aim}"
        return ""

    @property
    def verdict(self) -> str:
        """Of the limit and of the aim."""
        if not self.kept:
            return "MISSED"
        return "ok" if self.reached else "aim missed"


def shown(value: float, unit: str) -> str:
    """A value with its unit: 1.04x, 0.23 s, +5.0%."""
    if unit == "%":
        return f"{value:+.1f}%"
    return f"{value:.2f}{unit}" if unit == "x" else f"{value:.4g} {unit}"


def figure(
    title: str,
    name: str,
    value: float,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    aim: float | None = None,
    unit: str = "x",
    noise: float = USUAL_NOISE,
    before: str = "",
) -> bool:
    """Print a result with its limit, hand it to the gate, and return whether the limit is kept.

    Args:
        title: What was measured, without figures that differ from run to run; `name` is unique under it.
        aim: What the limit should be, where it is only what we can hold today; missing it is told, and no failure.
        noise: By how much two runs may differ, relative.
        before: Printed between name and value.
    """
    result = Figure(title, name, value, unit, at_most, at_least, noise, aim)
    verdict = f"  ({result.limit}: {result.verdict})" if result.limit else ""
    print(f"  {name:<34}{before}{shown(value, unit):>8}{verdict}", flush=True)
    _tell_gate(asdict(result))
    return result.kept


def report(
    title: str,
    seconds: Mapping[str, float],
    limits: Mapping[str, float],
    aims: Mapping[str, float] = MappingProxyType({}),
) -> bool:
    """Print times and ratios to the first alternative; return whether all limits are kept."""
    first, base = next(iter(seconds.items()))
    noise = seconds.noise if isinstance(seconds, Times) else {}
    kept = True
    print(title)
    for name, value in seconds.items():
        before = f"{1000 * value:10.1f} ms "
        if name == first:
            print(f"  {name:<34}{before}{shown(1, 'x'):>8}")
            continue
        kept &= figure(
            title,
            name,
            value / base,
            at_most=limits.get(name),
            aim=aims.get(name),
            noise=noise.get(name, USUAL_NOISE),
            before=before,
        )
    return kept


def skip(reason: str) -> None:
    """Say that there is nothing to measure here, and why."""
    print(f"skipped: {reason}")
    _tell_gate({"skipped": reason})


def _tell_gate(found: dict[str, object]) -> None:
    path = os.environ.get(FILE)
    if path:
        with open(path, "a") as file:
            file.write(json.dumps(found) + "\n")


def _tell_of_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _tell_gate({"crashed": f"{kind.__name__}: {error}"})
    sys.__excepthook__(kind, error, trace)


if FILE in os.environ:
    sys.excepthook = _tell_of_crash  # an exit code of 1 alone could be a missed limit
