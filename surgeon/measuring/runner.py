"""Runs contests: block by block, shared among processes, journalled."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Protocol

from torch import nn

from surgeon.core.processes import Processes
from surgeon.data.loaders import Batch
from surgeon.measuring.axes import Axis, Value
from surgeon.measuring.contest import Measurement
from surgeon.measuring.journal import Journal
from surgeon.measuring.predicting import Manner
from surgeon.metrics import Scores

BATCHES_PER_BLOCK = 4
SETTINGS_TIMED = 3

Progress = Callable[[str, int, int, int], None]
"""Called with the phase, the passes done and planned (in batches), and the number of settings still running."""


class BatchSource(Protocol):
    """Batches by number, to be gone through as often as needed; `bad` names the images that were left out."""

    bad: list[str]

    @property
    def batch_size(self) -> int: ...

    def only(self, numbers: Sequence[int]) -> BatchSource: ...

    def __iter__(self) -> Generator[Batch]: ...

    def __len__(self) -> int: ...


def say_nothing(phase: str, done: int, planned: int, running: int) -> None:
    """For those who do not want to watch."""


@dataclass
class Runner:
    """A network, how it predicts, and who watches and keeps the books."""

    model: nn.Module
    axis: Axis
    manner: Manner
    processes: Processes = field(default_factory=Processes)
    journal: Journal | None = None
    progress: Progress = say_nothing
    bad: dict[str, None] = field(default_factory=dict)

    def hold(self, phase: str, contest: Measurement, settings: Mapping[str, Value], batches: BatchSource) -> None:
        """Run a contest to its end, from where its journal stands."""
        self._restore(phase, contest)
        rank, count = self.processes.rank, self.processes.count
        mine = [number for number in range(contest.done, contest.batches) if number % count == rank]
        source = batches.only(mine)
        with closing(iter(source)) as stream:  # also when it fails: the loader has threads
            self._run(phase, contest, settings, source, stream, mine)

    def _run(
        self,
        phase: str,
        contest: Measurement,
        settings: Mapping[str, Value],
        source: BatchSource,
        stream: Iterator[Batch],
        mine: Sequence[int],
    ) -> None:
        passes = 0
        while contest.done < contest.batches:
            end = contest.next_end(max(BATCHES_PER_BLOCK, self.processes.count))
            running = {name: settings[name] for name in contest.running}
            watch = partial(self._report, phase, passes, contest.planned, len(running))
            share = islice(stream, sum(contest.done <= number < end for number in mine))
            block = self._block(running, share, source, watch)
            passes += (end - contest.done) * len(running)
            contest.add(end, block.scores)
            if self.journal is not None:
                self.journal.append({"phase": phase, "end": end, **block.record()})
            self.bad |= dict.fromkeys(block.bad)

    def once(self, phase: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What was computed in an earlier run, or is now."""
        for record in self._journalled(phase):
            found: dict[str, Any] = record["found"]
            return found
        # Every process computes the same, so that none waits longer than messages may take; the first one's counts.
        found = self.processes.gather(compute)[0]
        if self.journal is not None:
            self.journal.append({"phase": phase, "found": found})
        return found

    def seconds_of(self, settings: Mapping[str, Value], batches: BatchSource) -> float | None:
        """About how long all settings take on all images, by a few of them on the first batch; None if it is empty.

        Decoding is left out: it takes as long for one setting as for many.
        """
        with closing(iter(batches.only([0]))) as stream:
            images = next(stream).images
        if not len(images):
            return None
        few = list(settings.values())[-SETTINGS_TIMED:]
        with self.manner.applied_to(self.model):
            self.manner.logits(partial(self.axis.logits, values=few[:1]), images)  # the first pass is slower
            start = time.perf_counter()
            self.manner.logits(partial(self.axis.logits, values=few), images)
            seconds = time.perf_counter() - start
        passes = self.axis.passes(len(settings)) / self.axis.passes(len(few))
        return seconds * passes * len(batches) / self.processes.count

    def _report(self, phase: str, passes: int, planned: int, running: int, passes_of_block: int) -> None:
        self.progress(phase, passes + passes_of_block, passes + planned, running)

    def _block(
        self, settings: Mapping[str, Value], batches: Iterator[Batch], source: BatchSource, watch: Callable[[int], None]
    ) -> Block:
        def share() -> Block:
            before = len(source.bad)
            scores = self._score(settings, batches, watch)
            return Block(scores, source.bad[before:])

        together, *others = self.processes.gather(share)
        for other in others:
            together = together.joined(other)
        return together

    def _score(
        self, settings: Mapping[str, Value], batches: Iterator[Batch], watch: Callable[[int], None]
    ) -> dict[str, Scores]:
        scores = {name: Scores() for name in settings}
        predict = partial(self.axis.logits, values=list(settings.values()))
        with self.manner.applied_to(self.model):
            for number, batch in enumerate(batches, 1):
                logits = self.manner.logits(predict, batch.images) if len(batch.labels) else []
                for name, predicted in zip(settings, logits, strict=False):
                    scores[name].update(predicted, batch.labels, batch.indices)
                watch(number * len(settings) * self.processes.count)
        return scores

    def _restore(self, phase: str, contest: Measurement) -> None:
        for record in self._journalled(phase):
            block = Block.from_record(record)
            contest.add(record["end"], block.scores)
            self.bad |= dict.fromkeys(block.bad)

    def _journalled(self, phase: str) -> list[dict[str, Any]]:
        journal = self.journal
        records = self.processes.from_first(lambda: journal.records if journal is not None else [])
        return [record for record in records if record["phase"] == phase]


@dataclass(frozen=True)
class Block:
    """The scores of some batches at each setting, and the images that were left out."""

    scores: dict[str, Scores]
    bad: list[str]

    def joined(self, other: Block) -> Block:
        return Block({name: mine.merge(other.scores[name]) for name, mine in self.scores.items()}, self.bad + other.bad)

    def record(self) -> dict[str, Any]:
        scores = {name: base64.b85encode(of.to_bytes()).decode() for name, of in self.scores.items()}
        return {"bad": self.bad, "scores": scores}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Block:
        scores = {name: Scores.from_bytes(base64.b85decode(text)) for name, text in record["scores"].items()}
        return cls(scores, record["bad"])
