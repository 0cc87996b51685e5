"""Batches of images, each decoded once, in order, made by threads while the network is busy with earlier ones.

Threads, not processes: Pillow releases the GIL while it decodes and resizes, the pixels need not
be copied between processes, and nothing has to be started or pickled. Small images and a network on
the same cores take turns instead: their threads would wait for one another.
"""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from surgeon.core.errors import ExitCode, SurgeonError, count, listing
from surgeon.core.media import Medium
from surgeon.data.images import ImageSet, UnreadableImageError
from surgeon.data.masks import BadMaskError
from surgeon.data.png import PlainPngs
from surgeon.data.transforms import MakeInput, Transform, normalise, resized_mask, transform_for
from surgeon.models.origin import Preprocessing

PIECE = 16  # images per task: enough that small images do not cost more to hand out than to decode
BATCHES_AHEAD = 2


@dataclass(frozen=True)
class Batch:
    """Normalised images (channels last), their labels, and their indices in the set."""

    images: Tensor
    labels: Tensor
    """Class numbers; where images were mixed, a row of weights for each; of masks, (N, H, W)."""
    indices: Tensor
    prepared: Mapping[Preprocessing, Tensor] = field(default_factory=dict)
    """The same images for each of several kinds of preprocessing, of which the first is that of `images`."""
    pictures: Sequence[Image.Image] = ()
    """As they were decoded, if they are to be kept."""
    signals: Mapping[Preprocessing, Tensor] = field(default_factory=dict)
    """As they were before they were normalised, where that cannot be undone: waveforms."""
    masks: Mapping[Preprocessing, Tensor] = field(default_factory=dict)
    """Where images have masks, the labels for each kind of preprocessing."""

    def as_for(self, preprocessing: Preprocessing | None) -> Batch:
        """The same batch with the images of one kind of preprocessing."""
        if preprocessing is None:
            return self
        labels = self.masks.get(preprocessing, self.labels)
        return replace(self, images=self.prepared[preprocessing], labels=labels)


@dataclass(frozen=True)
class _Piece:
    """A part of a batch: its images for each kind of preprocessing, and those that could not be decoded."""

    indices: list[int]
    pixels: list[Tensor]
    """(N, H, W, C) for each kind of preprocessing; none if no image could be decoded."""
    masks: list[Tensor] = field(default_factory=list)
    pictures: list[Image.Image] = field(default_factory=list)
    bad: list[UnreadableImageError | BadMaskError] = field(default_factory=list)


class Batches:
    """The batches of a set; iterating again decodes again. `bad` names the images that were skipped."""

    repeatable = True

    def __init__(
        self,
        image_set: ImageSet,
        kinds: Sequence[Preprocessing],
        batch_size: int,
        fewest: int,
        workers: int,
        skip_bad: bool,
        keep_pictures: bool,
        transform: MakeInput = transform_for,
        in_turns: bool = False,
    ) -> None:
        self.image_set = image_set
        self.batch_size = batch_size
        self.cuts = cut(len(image_set), batch_size, fewest)
        self.numbers: Sequence[int] = range(len(self.cuts))
        self.workers = workers
        self.skip_bad = skip_bad
        self.keep_pictures = keep_pictures
        self.in_turns = in_turns
        self.bad: list[str] = []
        self._transforms = {kind: transform(kind) for kind in kinds}
        self._plain_pngs = None if keep_pictures else self._decoder_of_plain_pngs()

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
            for pieces in self._pieces(pool):
                yield self._assemble(pieces)
        finally:  # also when the caller stops early or is interrupted
            pool.shutdown(wait=True, cancel_futures=True)
        if len(self.bad) == len(self.image_set):
            samples = count(len(self.bad), self.image_set.medium.noun)
            raise SurgeonError(
                f"None of the {samples} of {self.image_set.name!r} can be read.", exit_code=ExitCode.FAILED
            )

    def _pieces(self, pool: ThreadPoolExecutor) -> Iterator[list[_Piece]]:
        """The pieces of each batch."""
        numbers = deque(self.numbers)
        while self.in_turns and numbers and (batch := self._plain(self.cuts[numbers[0]], torch.get_num_threads())):
            yield [batch]
            numbers.popleft()
        yield from self._ahead(pool, numbers)

    def _ahead(self, pool: ThreadPoolExecutor, numbers: Iterable[int]) -> Iterator[list[_Piece]]:
        """The same, while those of the next few batches are being decoded."""
        under_way: deque[list[Future[_Piece]]] = deque()
        for number in numbers:
            indices = self.cuts[number]
            starts = range(0, len(indices), PIECE)
            under_way.append([pool.submit(self._decode, indices[at : at + PIECE]) for at in starts])
            if len(under_way) > BATCHES_AHEAD:
                yield [piece.result() for piece in under_way.popleft()]
        while under_way:
            yield [piece.result() for piece in under_way.popleft()]

    def _decoder_of_plain_pngs(self) -> PlainPngs | None:
        """What reads files that need no picture, if no kind of preprocessing does more to them than to decode them."""
        if self.image_set.masks is not None or self.image_set.medium is not Medium.IMAGE:
            return None
        sizes = {kind.input_size for kind in self._transforms}
        for transform in self._transforms.values():
            if len(sizes) > 1 or not (isinstance(transform, Transform) and transform.leaves_alone(*sizes)):
                return None
        return PlainPngs(*sizes)

    def _decode(self, indices: range) -> _Piece:
        return self._plain(indices) or self._pictures(indices)

    def _plain(self, indices: range, threads: int = 1) -> _Piece | None:
        """Images that need no picture; None if one of them does, or is damaged."""
        if self._plain_pngs is None:
            return None
        compressed = []
        for index in indices:
            try:
                found = self._plain_pngs.compressed(self.image_set.content(index))
            except UnreadableImageError:
                return None
            if found is None:
                return None
            compressed.append(found)
        pixels = self._plain_pngs.pixels(compressed, threads)
        return None if pixels is None else _Piece(list(indices), [pixels] * len(self._transforms))

    def _pictures(self, indices: range) -> _Piece:
        decoded: list[int] = []
        pixels: list[list[Tensor]] = []
        masks: list[list[Tensor]] = []
        pictures: list[Image.Image] = []
        bad: list[UnreadableImageError | BadMaskError] = []
        for index in indices:
            try:
                picture = self.image_set.image(index)
                if self.image_set.masks is not None:
                    mask = self.image_set.mask(index, picture.size)
                    masks.append([resized_mask(mask, kind.input_size[-2:]) for kind in self._transforms])
                # As Pillow delivers them, (H, W, C): the batch is channels last without a copy.
                pixels.append([transform(picture).permute(1, 2, 0) for transform in self._transforms.values()])
            except (UnreadableImageError, BadMaskError) as error:
                bad.append(error)
                continue
            decoded.append(index)
            if self.keep_pictures:
                pictures.append(picture)
        return _Piece(decoded, _stacked(pixels), _stacked(masks), pictures, bad)

    def _assemble(self, pieces: list[_Piece]) -> Batch:
        self._account_for([error for piece in pieces for error in piece.bad])
        decoded = [piece for piece in pieces if piece.indices]
        indices = torch.tensor([index for piece in decoded for index in piece.indices], dtype=torch.int64)
        prepared, signals, masks = {}, {}, {}
        for number, kind in enumerate(self._transforms):
            if not decoded:
                prepared[kind] = torch.empty(0, *kind.input_size)
                continue
            together = torch.cat([piece.pixels[number] for piece in decoded]).permute(0, 3, 1, 2)
            prepared[kind] = normalise(together, kind)
            if not kind.is_reversible:
                signals[kind] = together
            if self.image_set.masks is not None:
                masks[kind] = torch.cat([piece.masks[number] for piece in decoded])
        return Batch(
            next(iter(prepared.values())),
            # A copy: the labels of a file may be read-only.
            next(iter(masks.values())) if masks else torch.from_numpy(self.image_set.labels[indices.numpy()]),
            indices,
            prepared,
            [picture for piece in pieces for picture in piece.pictures],
            signals,
            masks,
        )

    def _account_for(self, bad: list[UnreadableImageError | BadMaskError]) -> None:
        if bad and not self.skip_bad:
            raise bad[0] if len(bad) == 1 else _several(bad, self.image_set.medium.noun)
        self.bad += [error.identity for error in bad]


def _stacked(of_images: list[list[Tensor]]) -> list[Tensor]:
    """What there is of each image, one tensor for each kind of preprocessing.

    By numpy: torch would start threads for each thread that decodes, and all of them would wait less patiently for one
    another, those of the network too.
    """
    return [torch.from_numpy(np.stack([one.numpy() for one in of_kind])) for of_kind in zip(*of_images, strict=True)]


def _several(bad: list[UnreadableImageError | BadMaskError], noun: str) -> SurgeonError:
    names = listing((error.identity for error in bad), limit=3)
    return SurgeonError(
        f"{count(len(bad), noun)} of one batch cannot be read: {names}.",
        "Repair or remove them, or pass --skip-bad to skip them.",
    )


def batches(
    image_set: ImageSet,
    preprocessing: Preprocessing | Sequence[Preprocessing],
    batch_size: int,
    workers: int | None = None,
    skip_bad: bool = False,
    *,
    keep_pictures: bool = False,
    fewest: int = 1,
    transform: MakeInput = transform_for,
    in_turns: bool = False,
) -> Batches:
    """Decode a set once, in order, for one or several kinds of preprocessing.

    Args:
        image_set: The images.
        preprocessing: What is done to each picture.
        batch_size: How many images a batch has.
        workers: How many threads decode; one per core if not given.
        skip_bad: Leave unreadable images out instead of failing.
        keep_pictures: Let batches also hold the decoded pictures.
        fewest: A last batch with fewer images than this joins the one before.
        transform: What makes the input of a picture.
        in_turns: Decode small images when their batch is wanted, with all threads that torch has, and not meanwhile:
            for a network that computes on the same cores, whose threads would have to wait for one another.
    """
    if batch_size < 1:
        raise SurgeonError(f"The batch size cannot be {batch_size}.", "Give a batch size of at least 1.")
    kinds = [preprocessing] if isinstance(preprocessing, Preprocessing) else list(dict.fromkeys(preprocessing))
    return Batches(
        image_set, kinds, batch_size, fewest, workers or usable_cores(), skip_bad, keep_pictures, transform, in_turns
    )


def cut(images: int, batch_size: int, fewest: int = 1) -> list[range]:
    """The indices of each batch; a last one with fewer than `fewest` joins the one before, unless all are so small."""
    starts = list(range(0, images, batch_size))
    if len(starts) > 1 and images - starts[-1] < fewest <= batch_size:
        del starts[-1]
    return [range(start, end) for start, end in zip(starts, [*starts[1:], images], strict=True)]


def usable_cores() -> int:
    """The cores this process may run on, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
