"""Runs contests of the settings of one network, and estimates how long they take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from surgeon.core.processes import Processes
from surgeon.core.progress import Progress, say_nothing
from surgeon.measuring.axes import Axis, Value
from surgeon.measuring.books import Books
from surgeon.measuring.contest import Measurement
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.journal import Journal
from surgeon.measuring.spreading import Samples
from surgeon.measuring.variants import Variant

SETTINGS_TIMED = 3


@dataclass
class Runner:
    """A network, how it predicts, and who watches and keeps the books."""

    model: nn.Module
    axis: Axis
    inference: InferenceSettings
    processes: Processes = field(default_factory=Processes)
    journal: Journal | None = None
    progress: Progress = say_nothing
    bad: dict[str, None] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)
    """Seconds, by what they went into."""

    @property
    def books(self) -> Books:
        """Who watches and keeps the books."""
        return Books(
            self.processes, self.journal, self.progress, self.bad, self.spent, keep=self.inference.problem.keep
        )

    def hold(self, phase: str, contest: Measurement, settings: Mapping[str, Value], samples: Samples) -> None:
        """Run a contest to its end, from where its journal stands."""
        self.books.hold(phase, contest, lambda names: self._variants({name: settings[name] for name in names}), samples)

    def once(self, phase: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What was computed in an earlier run, or is now."""
        return self.books.once(phase, compute)

    def _variants(self, settings: Mapping[str, Value]) -> dict[str, Variant]:
        return {
            name: Variant(self.model, self.inference, axis=self.axis, value=value) for name, value in settings.items()
        }

    def seconds_of(self, settings: Mapping[str, Value], samples: Samples) -> float | None:
        """About how long all settings take on all images, by a few of them on the first batch; None if it is empty.

        Decoding is left out: it takes as long for one setting as for many.
        """
        with closing(iter(samples.only([0]))) as stream:
            images = next(stream).images
        if not len(images):
            return None
        few = list(settings.values())[-SETTINGS_TIMED:]
        with self.inference.applied_to(self.model):
            self.inference.logits(partial(self.axis.logits, values=few[:1]), images)  # the first pass is slower
            start = time.perf_counter()
            self.inference.logits(partial(self.axis.logits, values=few), images)
            seconds = time.perf_counter() - start
        passes = self.axis.passes(len(settings)) / self.axis.passes(len(few))
        return seconds * passes * len(samples) / self.processes.count
