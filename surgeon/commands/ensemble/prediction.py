"""Predict the same images by several networks, each image decoded once for all that take it alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from surgeon.core.errors import SurgeonError, count
from surgeon.core.processes import Processes
from surgeon.data.images import ImageSet
from surgeon.data.loaders import Batch
from surgeon.measuring.setup import Task
from surgeon.metrics import Scores
from surgeon.views import Merge, Merger

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the number of images done and the number of all."""

Group = Sequence[int]
"""Numbers of the networks whose predictions are averaged."""


def average(predictions: Sequence[Tensor], merge: Merge) -> Tensor:
    """One prediction out of several, to be used like logits; every network counts alike."""
    merger = Merger(merge)
    for logits in predictions:
        merger.add(logits)
    return merger.result()


@dataclass
class Scored:
    """Each network's scores, and those of each group's average; of one process, or of all together."""

    networks: list[Scores]
    groups: list[Scores]
    bad: list[str] = field(default_factory=list)

    @classmethod
    def nothing(cls, networks: int, groups: int) -> Scored:
        return cls([Scores() for _ in range(networks)], [Scores() for _ in range(groups)])

    def merge(self, other: Scored) -> Scored:
        def together(ours: list[Scores], theirs: list[Scores]) -> list[Scores]:
            return [mine.merge(yours) for mine, yours in zip(ours, theirs, strict=True)]

        return Scored(
            together(self.networks, other.networks), together(self.groups, other.groups), self.bad + other.bad
        )


@dataclass(frozen=True)
class Kept:
    """The logits of each network (images x classes, float32), which a choice of members goes through repeatedly."""

    logits: list[Tensor]
    labels: Tensor
    indices: Tensor


@dataclass(frozen=True)
class Predictor:
    """Networks on their device, and who else predicts."""

    tasks: Sequence[Task]
    processes: Processes
    progress: Progress

    def score(self, images: ImageSet, groups: Sequence[Group], merge: Merge, label: str) -> Scored:
        """Score networks and groups in one pass, keeping no logits."""

        def share() -> Scored:
            scored = Scored.nothing(len(self.tasks), len(groups))
            every = (*scored.networks, *scored.groups)
            with self._ready():
                for logits, batch in self._predictions(images, label, scored.bad):
                    averages = [average([logits[number] for number in group], merge) for group in groups]
                    for scores, prediction in zip(every, (*logits, *averages), strict=True):
                        scores.update(prediction, batch.labels, batch.indices)
            return scored

        together = Scored.nothing(len(self.tasks), len(groups))
        for part in self.processes.gather(share):
            together = together.merge(part)
        return together

    def keep(self, images: ImageSet, label: str) -> Kept:
        """The logits of all images."""

        def share() -> list[tuple[list[Tensor], Tensor, Tensor]]:
            with self._ready():
                predictions = self._predictions(images, label, [])
                return [(logits, batch.labels, batch.indices) for logits, batch in predictions]

        parts = [part for of_process in self.processes.gather(share) for part in of_process]
        if not parts:
            raise SurgeonError(f"None of the {count(len(images), 'image')} to choose members on can be read.")
        logits, labels, indices = zip(*parts, strict=True)
        return Kept(
            [torch.cat(of_network) for of_network in zip(*logits, strict=True)], *map(torch.cat, (labels, indices))
        )

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """All networks in evaluation mode and in their precision."""
        with ExitStack() as stack:
            for task in self.tasks:
                stack.enter_context(task.manner.applied_to(task.model))
            yield

    def _predictions(self, images: ImageSet, label: str, bad: list[str]) -> Iterator[tuple[list[Tensor], Batch]]:
        """The logits of all networks, batch by batch, of every so-manieth batch that falls to this process.

        There is one loader for each kind of preprocessing, and all of them go in step.
        """
        size = min(task.batch_size for task in self.tasks)
        loaders = {task.preprocessing: replace(task, batch_size=size).batches(images) for task in self.tasks}
        numbers = next(iter(loaders.values())).numbers[self.processes.rank :: self.processes.count]
        loaders = {kind: loader.only(numbers) for kind, loader in loaders.items()}
        done = 0
        for batches in zip(*loaders.values(), strict=True):
            of_kind, first = dict(zip(loaders, batches, strict=True)), batches[0]
            if not len(first.labels):  # all of them unreadable
                continue
            yield [_logits(task, of_kind[task.preprocessing]) for task in self.tasks], first
            done += len(first.labels) * self.processes.count
            self.progress(label, min(done, len(images)), len(images))
        bad += next(iter(loaders.values())).bad


def _logits(task: Task, batch: Batch) -> Tensor:
    (logits,) = task.manner.logits(lambda images: [task.model(images)], batch.images)
    return logits
