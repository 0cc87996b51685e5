"""Batches of decoded images, in order, made by threads while the network is busy with earlier ones.

Threads, not processes: Pillow releases the GIL while it decodes and resizes, the pixels need not
be copied between processes, and nothing has to be started or pickled.
"""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.data.images import ImageSet, UnreadableImageError
from surgeon.data.transforms import Transform, normalise
from surgeon.models.sources import Preprocessing

PIECE = 16  # images per task: enough that small images do not cost more to hand out than to decode
BATCHES_AHEAD = 2


@dataclass(frozen=True)
class Batch:
    """Normalised images (channels last), their labels, and their indices in the set."""

    images: Tensor
    labels: Tensor
    indices: Tensor


@dataclass(frozen=True)
class _Piece:
    """Decoded images of a part of a batch, and those that could not be decoded."""

    pixels: list[Tensor]
    indices: list[int]
    bad: list[UnreadableImageError]


class Batches:
    """The batches of a set; iterating again decodes again. `bad` names the images that were skipped."""

    def __init__(
        self, image_set: ImageSet, preprocessing: Preprocessing, batch_size: int, workers: int, skip_bad: bool
    ) -> None:
        self.image_set = image_set
        self.numbers: Sequence[int] = range(-(-len(image_set) // batch_size))
        self.preprocessing = preprocessing
        self.batch_size = batch_size
        self.workers = workers
        self.skip_bad = skip_bad
        self.bad: list[str] = []
        self._transform = Transform(preprocessing)

    def __len__(self) -> int:
        return len(self.numbers)

    def only(self, numbers: Sequence[int]) -> Batches:
        """Just these batches, each the same as among all."""
        some = copy.copy(self)
        some.numbers, some.bad = numbers, []
        return some

    def __iter__(self) -> Generator[Batch]:
        self.bad.clear()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="decode")
        try:
            for pieces in self._ahead(pool):
                yield self._assemble(pieces)
        finally:  # also when the caller stops early or is interrupted
            pool.shutdown(wait=True, cancel_futures=True)
        if len(self.bad) == len(self.image_set):
            raise SurgeonError(f"None of the {count(len(self.bad), 'image')} of {self.image_set.name!r} can be read.")

    def _ahead(self, pool: ThreadPoolExecutor) -> Iterator[list[_Piece]]:
        """The pieces of each batch, while those of the next few batches are being decoded."""
        under_way: deque[list[Future[_Piece]]] = deque()
        for number in self.numbers:
            first = number * self.batch_size
            last = min(first + self.batch_size, len(self.image_set))
            starts = range(first, last, PIECE)
            under_way.append([pool.submit(self._decode, range(at, min(at + PIECE, last))) for at in starts])
            if len(under_way) > BATCHES_AHEAD:
                yield [piece.result() for piece in under_way.popleft()]
        while under_way:
            yield [piece.result() for piece in under_way.popleft()]

    def _decode(self, indices: range) -> _Piece:
        piece = _Piece([], [], [])
        for index in indices:
            try:
                piece.pixels.append(self._transform(self.image_set.image(index)))
                piece.indices.append(index)
            except UnreadableImageError as error:
                piece.bad.append(error)
        return piece

    def _assemble(self, pieces: list[_Piece]) -> Batch:
        self._account_for([error for piece in pieces for error in piece.bad])
        pixels = [image for piece in pieces for image in piece.pixels]
        if not pixels:  # all of them bad
            nothing = torch.empty(0, dtype=torch.int64)
            return Batch(torch.empty(0, *self.preprocessing.input_size), nothing, nothing)
        # Stacked as (N, H, W, C), which is how Pillow delivers them: the batch is channels last without a copy.
        stacked = torch.stack([image.permute(1, 2, 0) for image in pixels]).permute(0, 3, 1, 2)
        indices = torch.tensor([index for piece in pieces for index in piece.indices])
        labels = torch.from_numpy(self.image_set.labels)[indices]
        return Batch(normalise(stacked, self.preprocessing), labels, indices)

    def _account_for(self, bad: list[UnreadableImageError]) -> None:
        if bad and not self.skip_bad:
            raise bad[0] if len(bad) == 1 else _several(bad)
        self.bad += [error.identity for error in bad]


def _several(bad: list[UnreadableImageError]) -> SurgeonError:
    names = listing((error.identity for error in bad), limit=3)
    return SurgeonError(f"{count(len(bad), 'image')} of one batch cannot be read: {names}.", bad[0].hint)


def batches(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    batch_size: int,
    workers: int | None = None,
    skip_bad: bool = False,
) -> Batches:
    """Decode a set once, in order; an unreadable image is an error unless it is to be skipped."""
    if batch_size < 1:
        raise SurgeonError(f"The batch size cannot be {batch_size}.", "Give a batch size of at least 1.")
    return Batches(image_set, preprocessing, batch_size, workers or usable_cores(), skip_bad)


def usable_cores() -> int:
    """The cores this process may run on, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
