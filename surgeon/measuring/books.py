"""Runs measurements on the engine: block by block, each journalled once all processes have done their share."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from surgeon.core.errors import count
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress, say_nothing
from surgeon.measuring.contest import Measurement
from surgeon.measuring.engine import score_batches
from surgeon.measuring.journal import Journal
from surgeon.measuring.keeping import Scored
from surgeon.measuring.spreading import Samples, spread
from surgeon.measuring.variants import Variant
from surgeon.metrics import Scores
from surgeon.metrics.mask_scores import scores_from_bytes
from surgeon.problems import CLASSIFICATION

BATCHES_PER_BLOCK = 4


@dataclass
class Books:
    """Who shares the work, who watches, and where finished blocks are written down."""

    processes: Processes = field(default_factory=Processes)
    journal: Journal | None = None
    progress: Progress = say_nothing
    bad: dict[str, None] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)
    """Seconds, by what they went into."""
    counted: str = "setting"
    """What a measurement compares."""
    keep: Callable[[str], Scores] = CLASSIFICATION.keep
    """What is kept of predictions."""

    def hold(
        self,
        phase: str,
        contest: Measurement,
        variants: Callable[[Sequence[str]], Mapping[str, Variant]],
        samples: Samples,
    ) -> None:
        """Run a measurement to its end, from where its journal stands.

        Args:
            phase: What it is called in the journal.
            contest: What takes in the scores.
            variants: What predicts, for the names that are still running.
            samples: The batches.
        """
        self._restore(phase, contest)
        passes = 0
        with spread(samples, self.processes, contest.done) as share:
            while contest.done < contest.batches:
                end = contest.next_end(max(BATCHES_PER_BLOCK, self.processes.count))
                running = variants(contest.running)
                block = share.score(
                    end,
                    partial(score_batches, running, keep=self.keep),
                    partial(self._report, phase, passes, contest.planned, len(contest.running)),
                )
                passes += (end - contest.done) * len(contest.running)
                contest.add(end, block.kept)
                self.spent.update(block.spent)
                if self.journal is not None:
                    self.journal.append({"phase": phase, "end": end, **as_record(block)})
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

    def _report(self, phase: str, passes: int, planned: int, running: int, batches: int, _: int) -> None:
        self.progress(phase, passes + batches * running, passes + planned, count(running, self.counted))

    def _restore(self, phase: str, contest: Measurement) -> None:
        for record in self._journalled(phase):
            block = from_record(record)
            contest.add(record["end"], block.kept)
            self.bad |= dict.fromkeys(block.bad)

    def _journalled(self, phase: str) -> Iterable[dict[str, Any]]:
        """What an earlier run, or this one, has written down; one process does not need all of it in memory."""
        journal = self.journal

        def found() -> Iterator[dict[str, Any]]:
            return (record for record in (journal.records() if journal is not None else ()) if record["phase"] == phase)

        return found() if self.processes.count == 1 else self.processes.from_first(lambda: list(found()))


def as_record(block: Scored[Scores]) -> dict[str, Any]:
    """The scores of a block and the images that were left out, for a journal."""
    scores = {name: base64.b85encode(of.to_bytes()).decode() for name, of in block.kept.items()}
    return {"bad": block.bad, "scores": scores}


def from_record(record: Mapping[str, Any]) -> Scored[Scores]:
    """What `as_record` has recorded."""
    scores = {name: scores_from_bytes(base64.b85decode(text)) for name, text in record["scores"].items()}
    return Scored(scores, record["bad"])
