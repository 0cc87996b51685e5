"""Settings compete on the same images. A grid measures all of them on all images; a race goes on without the losers.

A race is cut into rounds. After each, settings that the leader beats beyond noise, image by image, are
dropped; and because neighbouring values can hardly be told apart on any number of images, the field
is thinned out to the best few. The original always runs to the end: every gain is a gain over it.

Thinning out on few images would leave the choice to chance, so each round also needs a number of
images. `benchmarks/race_regret.py` measures what a race loses by going on without the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from surgeon.core.errors import SurgeonError
from surgeon.measuring.comparison import gain_over
from surgeon.metrics import Metric, Metrics, Scores, compare_scores, summarise
from surgeon.metrics.interval import Z95
from surgeon.metrics.pooling import AnyScores
from surgeon.results import Gain, Method

# The share of the images after which a round ends, how many there must have been, and the share of settings that go on.
RACE: tuple[tuple[float, int, float], ...] = ((0.08, 250, 1 / 2), (0.16, 500, 1 / 4), (0.35, 1000, 1 / 9))
FEWEST_RUNNING = 2
BEATEN = 3.0  # standard errors of the paired difference: one honest value in 700 is lost


@dataclass(frozen=True)
class Round:
    """Ends before a batch; then at most so many settings go on."""

    end: int
    most: int


def rounds(method: Method, settings: int, batches: int, batch_size: int) -> tuple[Round, ...]:
    """The rounds of a contest, of which the last ends with the images."""
    if method is Method.GRID:
        return (Round(batches, settings),)
    early = {
        max(round(share * batches), math.ceil(images / batch_size)): max(round(rest * settings), FEWEST_RUNNING)
        for share, images, rest in RACE
    }
    return (*(Round(end, most) for end, most in early.items() if end < batches), Round(batches, settings))


class Measurement:
    """The scores of settings, by name, as batches come in."""

    passes: Callable[[int], int] = int
    """How often an image goes through the network for a number of settings, if not once for each."""

    nothing: Callable[[], AnyScores] = Scores
    """The scores of no images."""

    def __init__(self, names: Sequence[str], batches: int) -> None:
        self.names = tuple(names)
        self.running = list(names)
        self.scores: dict[str, AnyScores] = {name: self.nothing() for name in names}
        self.batches = batches
        self.done = 0
        self.forwards = 0

    def next_end(self, most: int) -> int:
        """Before which batch the next block ends: at most so many batches on."""
        return min(self.done + most, self.batches)

    @property
    def planned(self) -> int:
        """How many times a batch still has to go through the network."""
        return (self.batches - self.done) * len(self.running)

    def add(self, end: int, scores: Mapping[str, AnyScores]) -> None:
        """Take in the scores of the batches before `end`."""
        if set(scores) != set(self.running):
            raise SurgeonError("The scores of a block do not belong to the settings that are still running.")
        for name, of_block in scores.items():
            self.scores[name] = self.scores[name].absorb(of_block)  # type: ignore[arg-type]  # both of one kind
        self.forwards += self.passes(len(scores)) * max(map(len, scores.values()))
        self.done = end


class Contest(Measurement):
    """Settings that compete. Their names stand in the order of what they mean, unless `away` says how far each is."""

    def __init__(
        self,
        names: Sequence[str],
        original: str,
        metric: Metric,
        method: Method,
        batches: int,
        batch_size: int,
        also: Sequence[Metric] = (),
        away: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(names, batches)
        self.original = original
        first = self.names.index(original)
        self.away = away or {name: abs(place - first) for place, name in enumerate(self.names)}
        self.metric = metric
        self.also = tuple(also)
        self.dropped: dict[str, str] = {}
        self.gains: dict[str, Gain] = {}
        self.other_gains: dict[str, tuple[Gain, ...]] = {}
        self._rounds = list(rounds(method, len(names), batches, batch_size))

    def next_end(self, most: int) -> int:
        return min(self.done + most, self._rounds[0].end)

    @property
    def planned(self) -> int:
        work, done, running = 0, self.done, len(self.running)
        for each in self._rounds:
            work += (each.end - done) * running
            done, running = each.end, min(running, each.most + 1)
        return work

    def add(self, end: int, scores: Mapping[str, AnyScores]) -> None:
        """The same; where that ends a round, drop who has lost."""
        super().add(end, scores)
        if end == self._rounds[0].end:
            self._end_round(self._rounds.pop(0).most)

    def begin_with(
        self, computed: Mapping[str, AnyScores], estimates: Mapping[str, AnyScores], going_on: Sequence[str], end: int
    ) -> None:
        """Start from what is known of the batches before `end`; only settings that were computed there can go on."""
        self.scores |= {**estimates, **computed}
        self.done = end
        self._compare([name for name in self.names if name != self.original])
        self.dropped |= {
            name: "thinned out" if name in computed else "interpolated" for name in self.names if name not in going_on
        }
        self.running = [name for name in self.names if name in going_on]
        self._rounds = [Round(self.batches, len(self.running))]

    def _end_round(self, most: int) -> None:
        if not len(self.scores[self.original]):  # none of the images so far could be read
            return
        # Now, because only now the original has seen the same images as those that are about to be dropped.
        self._compare([name for name in self.running if name != self.original])
        if not self._rounds:
            return
        leader, *behind = self._ranking()
        for place, name in enumerate(behind, 1):
            if name == self.original:
                continue
            if self.beats(leader, name, self.scores):
                self.dropped[name] = "beaten"
            elif place >= most:
                self.dropped[name] = "thinned out"
        self.running = [name for name in self.running if name not in self.dropped]

    def best(self) -> str:
        """The best of those that have seen all images; of equal ones, that nearest to the original."""
        return self._ranking()[0]

    def _ranking(self) -> list[str]:
        """Those still running, the best first; of equal ones, that nearest to the original."""

        def rank(name: str) -> tuple[float, int]:
            return -merit(self.metric, summarise(self.scores[name])), self.away[name]

        return sorted(self.running, key=rank)

    def _gain(self, name: str, metric: Metric) -> Gain:
        return gain_over(self.scores[self.original], self.scores[name], metric)

    def beats(self, leader: str, name: str, scores: Mapping[str, AnyScores]) -> bool:
        """Whether the leader is better beyond noise."""
        if self.metric.per_image is None:  # its interval is costly, and thinning out will do
            return False
        compared = compare_scores(self.metric, scores[name], scores[leader])
        if math.isinf(compared.difference):
            return True
        error = (compared.high - compared.low) / (2 * Z95)
        worse = -compared.difference if self.metric.higher_is_better else compared.difference
        return worse > BEATEN * error and math.isfinite(error)

    def _compare(self, others: Sequence[str]) -> None:
        """Note the gains of others over the original."""
        self.gains |= {name: self._gain(name, self.metric) for name in others}
        self.other_gains |= {name: tuple(self._gain(name, metric) for metric in self.also) for name in others}


def merit(metric: Metric, record: Metrics) -> float:
    """More is better; a setting whose logits are not numbers loses, whatever the metric."""
    return -math.inf if record.nan_images else metric.merit(record)
