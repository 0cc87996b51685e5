"""The batches of samples, spread over the processes that were launched together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from typing import Protocol

from surgeon.core.processes import Processes
from surgeon.data.loaders import Batch
from surgeon.measuring.keeping import K, Scored


class Samples(Protocol):
    """Batches by number, to be gone through as often as needed; `bad` names the samples that were left out."""

    bad: list[str]
    repeatable: bool
    """Whether going through them again gives the same batches."""

    @property
    def batch_size(self) -> int: ...

    def only(self, numbers: Sequence[int]) -> Samples: ...

    def __iter__(self) -> Generator[Batch]: ...

    def __len__(self) -> int: ...


class Compute(Protocol[K]):
    """Scores some batches, and tells `watch` of the images of each."""

    def __call__(self, batches: Iterator[Batch], /, *, watch: Callable[[int], None]) -> Scored[K]: ...


class Share:
    """The batches that fall to this process, in stretches that end together in all processes."""

    def __init__(self, source: Samples, numbers: Sequence[int], stream: Iterator[Batch], processes: Processes) -> None:
        self.source = source
        self.processes = processes
        self._numbers = numbers
        self._done = 0
        self._stream = stream

    def score(
        self,
        end: int,
        compute: Compute[K],
        watch: Callable[[int, int], None],
    ) -> Scored[K]:
        """What all processes make of the batches from where they are to before `end`.

        Args:
            end: The number of a batch.
            compute: What this process does with its batches.
            watch: Told how many batches and images all processes have done, as far as this one can tell.
        """

        def mine() -> Scored[K]:
            left_out, batches, images = len(self.source.bad), 0, 0

            def told(of_batch: int) -> None:
                nonlocal batches, images
                batches, images = batches + 1, images + of_batch
                watch(batches * self.processes.count, images * self.processes.count)

            begun, self._done = self._done, bisect_left(self._numbers, end)
            scored = compute(islice(self._stream, self._done - begun), watch=told)
            return replace(scored, bad=self.source.bad[left_out:])

        first, *others = self.processes.gather(mine)
        for other in others:
            first = first.joined(other)
        return first


@contextmanager
def spread(samples: Samples, processes: Processes, first: int = 0) -> Iterator[Share]:
    """Spread batches, from some number on, over processes: every n-th falls to each, the same as if one did all."""
    numbers = [number for number in range(first, len(samples)) if number % processes.count == processes.rank]
    source = samples.only(numbers)
    with closing(iter(source)) as stream:  # also when it fails: the loader has threads
        yield Share(source, numbers, stream, processes)
