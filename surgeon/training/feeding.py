"""What every step is fed with: a batch of labelled images, and unlabelled ones beside it if there are any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from surgeon.augment.pipeline import Augmentation
from surgeon.core.errors import SurgeonError
from surgeon.core.processes import Processes
from surgeon.data.images import ImageSet
from surgeon.data.seeding import seed_from
from surgeon.losses.base import Copy
from surgeon.training.copies import Copies
from surgeon.training.images import AugmentedImages, Order, TrainingBatch, training_batches
from surgeon.training.recipe import Recipe
from surgeon.training.unlabelled import Unlabelled

BESIDE = 1
"""Number of the draws for unlabelled images, which are others than those for labelled ones."""

Fed = Iterator[TrainingBatch | SurgeonError]
"""The batches of steps, or what is wrong with one."""


@dataclass(frozen=True)
class Feed:
    """Images to train on, in batches.

    Args:
        labelled: Those whose labels are learned.
        unlabelled: Others, if there are any.
        batch_size: Labelled images in a step, over all processes.
        recipe: Says in which order, and what is drawn.
        processes: Those that share each batch.
        workers: Processes that decode and augment; 0: only this one.
        skip_bad: Leave out images that cannot be read.
    """

    labelled: ImageSet
    batch_size: int
    recipe: Recipe
    unlabelled: Unlabelled | None
    processes: Processes
    workers: int
    skip_bad: bool

    @property
    def steps_per_epoch(self) -> int:
        """An epoch is a pass over the labelled images, or over the unlabelled ones if that is longer."""
        steps = len(self.labelled) // self.batch_size
        if self.unlabelled is None:
            return steps
        return max(steps, len(self.unlabelled.images) // self._unlabelled_in_batch)

    @property
    def _unlabelled_in_batch(self) -> int:
        return self.batch_size * self.unlabelled.ratio if self.unlabelled is not None else 0

    def check(self) -> None:
        """Refuse batches that there are too few unlabelled images for."""
        if self.unlabelled is not None and self._unlabelled_in_batch > len(self.unlabelled.images):
            raise SurgeonError(
                f"A batch of {self.batch_size} labelled images goes with {self._unlabelled_in_batch:,} unlabelled "
                f"ones, and there are {len(self.unlabelled.images):,}.",
                "Choose a smaller --batch-size, or --set unlabelled_ratio=1.",
            )

    def batches(self, copies: Copies, first_step: int, steps: int) -> Fed:
        """Those of all steps from the first one on."""
        if self.unlabelled is None:
            return self._of(self.labelled, copies.augmentations, self.batch_size, (first_step, steps), self.workers)
        size = self._unlabelled_in_batch
        return side_by_side(
            self._of(self.labelled, copies.augmentations, self.batch_size, (first_step, steps), min(1, self.workers)),
            self._of(self.unlabelled.images, copies.unlabelled, size, (first_step, steps), self.workers, BESIDE),
        )

    def _of(
        self,
        images: ImageSet,
        augmentations: Mapping[Copy, Augmentation],
        size: int,
        steps: tuple[int, int],
        workers: int,
        *numbers: int,
    ) -> Fed:
        """The batches of one kind of images; numbers set apart what is drawn for them."""
        order, drawing = (
            seed_from(seed, *numbers) if numbers else seed
            for seed in (self.recipe.seed_of_order, self.recipe.seed_of_augmentation)
        )
        rank, count = self.processes.rank, self.processes.count
        places = Order(len(images), size, order, *steps, rank, count, self.recipe.rounding_seed)
        return training_batches(
            AugmentedImages(images, tuple(augmentations.values()), drawing), places, workers, self.skip_bad
        )


def side_by_side(labelled: Fed, unlabelled: Fed) -> Fed:
    """Batches of labelled images, each with its unlabelled ones; or what is wrong with either."""
    for batch, others in zip(labelled, unlabelled, strict=True):
        if isinstance(batch, SurgeonError):
            yield batch
        elif isinstance(others, SurgeonError):
            yield others
        else:
            yield replace(batch, unlabelled=others.copies, left_out=batch.left_out + others.left_out)
