"""What a race loses by going on without the values that are behind: accuracy against the grid's choice, and its work.

Simulated networks, whose accuracy is a smooth curve over 21 values with its best value at the original or beyond;
each image has its own taste for alpha, as real ones do. The loss is the true accuracy of the value that a grid
chooses on the same images, less that of the race's. Sweeps of alpha interpolate; whatever else is swept is raced in
rounds.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from surgeon.measuring import contest
from surgeon.measuring.contest import Contest
from surgeon.measuring.interpolation import lagrange, nodes_and_checks
from surgeon.measuring.shortcut import CHECKED_IMAGES, estimated_batches, pick
from surgeon.metrics import Scores, metrics
from surgeon.results import Method

VALUES = np.linspace(0, 1, 21)
NAMES = [f"alpha {value:g}" for value in VALUES]
ORIGINAL = NAMES[0]
SIZES = (300, 1000, 5000)
BATCH = 32
ROUNDS = {
    "rounds of shares alone": tuple((share, 1, rest) for share, _, rest in contest.RACE),
    "rounds": contest.RACE,
}
MOST_LOST = 0.05  # points of accuracy, on average


@dataclass(frozen=True)
class Curve:
    """How much the network depends on alpha, and where it is best, in units of the largest value."""

    height: float
    peak: float

    def margins(self, images: int, random: np.random.Generator) -> NDArray[np.float64]:
        """By how much the label is ahead of the next class: images x values."""
        hardness, taste = random.normal(1.2, 1, (images, 1)), random.normal(self.peak, 0.6, (images, 1))
        return hardness + self.height * (2 * taste * VALUES - VALUES**2) + random.normal(0, 0.02, (images, len(VALUES)))


@cache
def accuracies(curve: Curve, images: int = 200_000) -> NDArray[np.float64]:
    """The truth, by many images."""
    shares: NDArray[np.float64] = (curve.margins(images, np.random.default_rng(9)) > 0).mean(axis=0)
    return shares


CURVES = tuple(Curve(height, peak) for height, peak in product((0.1, 0.3, 0.8), (0.0, 0.3, 0.6)))


def _scores(margins: NDArray[np.float64], first: int) -> Scores:
    logits = torch.from_numpy(np.stack([margins, np.zeros_like(margins)], axis=1))
    scores = Scores()
    scores.update(logits, torch.zeros(len(margins), dtype=torch.int64), np.arange(first, first + len(margins)))
    return scores


Raced = Callable[[NDArray[np.float64]], tuple[int, float]]
"""The place of the value that a race chooses, and how many evaluations of all images it takes."""


def race(margins: NDArray[np.float64]) -> tuple[int, float]:
    """In rounds, after which some of the values go on."""
    running = _contest(len(margins))
    _to_the_end(running, margins)
    return NAMES.index(running.best()), running.forwards / len(margins)


def interpolated(margins: NDArray[np.float64]) -> tuple[int, float]:
    """The original against one challenger, which is found by interpolation on the first images."""
    images = len(margins)
    running = _contest(images)
    nodes, checks = nodes_and_checks(VALUES.tolist(), 0.0)
    end = estimated_batches(math.ceil(images / BATCH), BATCH)
    first = margins[: end * BATCH]
    places = [VALUES.tolist().index(node) for node in nodes]
    estimated = first[:, places] @ lagrange(nodes, VALUES.tolist()).T
    estimated[:, places] = first[:, places]
    estimates = {name: _scores(estimated[:, place], 0) for place, name in enumerate(NAMES)}
    challenger = pick(running, estimates)
    new = NAMES.index(challenger) not in places
    computed = {NAMES[place]: estimates[NAMES[place]] for place in places}
    computed[challenger] = _scores(first[:, NAMES.index(challenger)], 0)
    running.forwards = (len(nodes) + new) * len(first)
    running.forwards += len(checks) * min(math.ceil(CHECKED_IMAGES / BATCH) * BATCH, images)
    running.begin_with(computed, estimates, [ORIGINAL, challenger], end)
    _to_the_end(running, margins)
    return NAMES.index(running.best()), running.forwards / images


def _contest(images: int) -> Contest:
    return Contest(NAMES, ORIGINAL, metrics["accuracy"], Method.RACE, math.ceil(images / BATCH), BATCH)


def _to_the_end(running: Contest, margins: NDArray[np.float64]) -> None:
    while running.done < running.batches:
        end = running.next_end(running.batches)
        part = slice(running.done * BATCH, min(end * BATCH, len(margins)))
        running.add(end, {name: _scores(margins[part, NAMES.index(name)], part.start) for name in running.running})


def grid(margins: NDArray[np.float64]) -> int:
    """The place of the most accurate value; of equal ones, that nearest to the original, which is the first."""
    return int((margins > 0).sum(axis=0).argmax())


def losses(size: int, samples: int, seed: int = 1, raced: Raced = race) -> Iterator[tuple[float, float]]:
    """In points of accuracy, with the work, of several samples of each curve."""
    random = np.random.default_rng(seed)
    for curve in CURVES:
        truth = 100 * accuracies(curve)
        for _ in range(samples):
            margins = curve.margins(size, random)
            chosen, work = raced(margins)
            yield float(truth[grid(margins)] - truth[chosen]), work


def _told(size: int, name: str, found: Iterator[tuple[float, float]]) -> float:
    """The mean loss, after a line about all."""
    lost, work = np.array(list(found)).T
    figures = f"{lost.mean():+14.3f} {np.quantile(lost, 0.95):14.2f} {lost.max():13.2f}"
    print(f"{size:>6}  {name:<24}{figures}   {work.mean():14.1f}", flush=True)
    return float(lost.mean())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=25, help="of each curve and number of images")
    arguments = parser.parse_args()
    print(f"{len(VALUES)} values by accuracy, {len(CURVES)} curves with {arguments.samples} samples each")
    print("images  rounds                   loss (points): mean, 95th percentile, largest  work (evaluations)")
    kept = True
    for size in SIZES:
        for name, rounds in ROUNDS.items():
            contest.RACE = rounds
            _told(size, name, losses(size, arguments.samples))
        lost = _told(size, "interpolated", losses(size, arguments.samples, raced=interpolated))
        kept &= lost <= MOST_LOST
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
