"""Training images: which belong to a step is decided by seed and step alone, and so is what is done to each.

Worker processes, not threads as in evaluation: the augmentations of timm and torchvision draw from
the process's global generators, which are seeded here for every image. So neither the number of
workers nor an interruption changes what a step sees.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from surgeon.augment.pipeline import Augmentation
from surgeon.core.errors import SurgeonError
from surgeon.data.images import ImageSet, UnreadableImageError
from surgeon.data.masks import BadMaskError
from surgeon.data.seeding import seed_from, seeded

FEWEST_IMAGES = 2
"""With which BatchNorm can take statistics."""

Position = tuple[int, int]
"""Epoch and index of an image."""


@dataclass(frozen=True)
class Order(Sampler[list[Position]]):
    """The images of every step: each epoch in a new order, without a smaller last batch.

    Of several processes, each takes its stretch of every batch. With a rounding seed, the images of a batch change
    places: sums over them are then rounded in another order, and nothing else is different.
    """

    images: int
    batch_size: int
    seed: int
    first_step: int
    steps: int
    rank: int = 0
    processes: int = 1
    rounding_seed: int | None = None

    @property
    def steps_per_epoch(self) -> int:
        return self.images // self.batch_size

    def __len__(self) -> int:
        return self.steps - self.first_step

    def __iter__(self) -> Iterator[list[Position]]:
        share = self.batch_size // self.processes
        of_epoch, order = -1, np.empty(0, dtype=np.int64)
        for step in range(self.first_step, self.steps):
            epoch, number = divmod(step, self.steps_per_epoch)
            if epoch != of_epoch:
                of_epoch = epoch
                order = np.random.default_rng(seed_from(self.seed, epoch)).permutation(self.images)
            start = number * self.batch_size + self.rank * share
            chosen = order[start : start + share]
            if self.rounding_seed is not None:
                chosen = np.random.default_rng(seed_from(self.rounding_seed, step)).permutation(chosen)
            yield [(epoch, int(index)) for index in chosen]


@dataclass(frozen=True)
class TrainingBatch:
    """Bytes of one or more augmented copies of the same images (N, C, H, W), channels last, and their labels or masks.

    `unlabelled` are copies of other images, whose labels are not known; `left_out` is how many could not be read.
    """

    copies: tuple[Tensor, ...]
    labels: Tensor
    indices: Tensor
    unlabelled: tuple[Tensor, ...] = ()
    left_out: int = 0

    @property
    def images(self) -> int:
        """How many images it shows."""
        return len(self.labels) + (len(self.unlabelled[0]) if self.unlabelled else 0)


@dataclass(frozen=True)
class _Example:
    copies: tuple[Tensor, ...]
    label: Tensor
    """A class number, or a mask (H, W)."""
    index: int


class AugmentedImages(Dataset[_Example | UnreadableImageError | BadMaskError]):
    """Images as their augmentations leave them, one copy for each."""

    def __init__(self, image_set: ImageSet, augmentations: Sequence[Augmentation], seed: int) -> None:
        self.image_set = image_set
        self.augmentations = augmentations
        self.seed = seed

    def __getitem__(self, place: Position) -> _Example | UnreadableImageError | BadMaskError:
        epoch, index = place
        label = torch.tensor(int(self.image_set.labels[index]))
        try:
            image = self.image_set.image(index)
            if self.image_set.masks is not None:
                label = torch.from_numpy(self.image_set.mask(index, image.size))
        except (UnreadableImageError, BadMaskError) as error:
            return error  # an exception would lose its parts on the way out of a worker
        copies = []
        for number, augmentation in enumerate(self.augmentations):
            with seeded(self.seed, epoch, index):  # the same crop for all copies
                if augmentation.joint is None:
                    copy = augmentation.geometry(image)
                else:  # the only copy, which its mask is cut with
                    copy, label = augmentation.joint(image, label)
            if augmentation.image:  # setting all generators takes a tenth of the time of decoding
                with seeded(self.seed, epoch, index, number):
                    for operation in augmentation.image:
                        copy = operation(copy)
            pixels = torch.from_numpy(np.array(copy))
            copies.append(pixels[..., None] if pixels.dim() == 2 else pixels)
        return _Example(tuple(copies), label, index)


class _Collate:
    """A batch out of examples; an unreadable one is an error, or is left out."""

    def __init__(self, skip_bad: bool) -> None:
        self.skip_bad = skip_bad

    def __call__(self, examples: list[_Example | UnreadableImageError | BadMaskError]) -> TrainingBatch | SurgeonError:
        good = [example for example in examples if isinstance(example, _Example)]
        bad = [example for example in examples if isinstance(example, UnreadableImageError | BadMaskError)]
        if bad and not self.skip_bad:
            return SurgeonError(bad[0].message, bad[0].hint)
        if len(good) < FEWEST_IMAGES:
            return SurgeonError(
                bad[0].message,
                f"Fewer than {FEWEST_IMAGES} images of its batch of {len(examples)} are left: use larger batches.",
            )
        copies = zip(*(example.copies for example in good), strict=True)
        return TrainingBatch(
            tuple(torch.stack(images).permute(0, 3, 1, 2) for images in copies),
            torch.stack([example.label for example in good]),
            torch.tensor([example.index for example in good]),
            left_out=len(bad),
        )


def training_batches(
    images: AugmentedImages, order: Order, workers: int, skip_bad: bool
) -> Iterator[TrainingBatch | SurgeonError]:
    """The batches of all steps from the first one on, or what is wrong with one: all processes have to hear of it."""
    if "fork" not in torch.multiprocessing.get_all_start_methods():
        workers = 0
    loader = DataLoader(
        images,
        batch_sampler=order,
        num_workers=workers,
        collate_fn=_Collate(skip_bad),
        worker_init_fn=_begin_worker,
        prefetch_factor=4 if workers else None,
        multiprocessing_context="fork" if workers else None,  # operations are closures, which cannot be sent
    )
    yield from loader


def _begin_worker(number: int) -> None:  # noqa: ARG001
    """One thread each, and deaf to Ctrl-C, which is for the process that trains."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
