"""The images to train on, those to validate on, and those that are looked at once, at the very end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.data.images import ImageSet
from surgeon.data.masks import values_in
from surgeon.data.named_splits import WHOLE
from surgeon.data.stratified import limit
from surgeon.measuring.choosing import hold_back, open_split
from surgeon.measuring.preparation import InferenceRequest, open_images

MOST_CLASSES = 1024
"""Of masks: a network has a score for each of them at every pixel."""


@dataclass(frozen=True)
class Splits:
    """Three disjoint sets of images with the same classes; `test` is None where there is none."""

    train: ImageSet
    validation: ImageSet
    test: ImageSet | None
    held_back: bool
    """Whether the validation images were taken out of the training images."""


def open_splits(request: InferenceRequest, train_images: int | None = None) -> Splits:
    """Open all splits of a data set; without validation images, a tenth of the training images is held back.

    Of what is left to train on, at most `train_images` are taken.
    """
    whole = open_split(request, "train")
    if whole is None:
        whole = open_images(replace(request, split=None))
        if whole.split != WHOLE:
            raise SurgeonError(f"{whole.name!r} has no split 'train' to train on.", "Put training images into train/.")
    validation, test = open_split(request, "validation"), open_split(request, "test")
    train = whole
    if validation is None:
        train, validation = hold_back(whole)
    if train.masks is not None:
        train, validation, test = with_common_classes(train, validation, test)
    for images in (validation, test):
        if images is not None:
            _check(train, images, request.limit)
    held_back = validation.split == train.split
    if train_images is not None:
        train = train.subset(limit(train.labels, train_images))
    return Splits(train, validation, test, held_back)


def with_common_classes(
    train: ImageSet, validation: ImageSet, test: ImageSet | None
) -> tuple[ImageSet, ImageSet, ImageSet | None]:
    """Images whose masks have the same classes; if no file names them, as many as numbers occur in any mask."""
    if train.names_known:
        return train, validation, test
    found: set[int] = set()
    for images in (train, validation, *([test] if test is not None else [])):
        assert images.masks is not None
        found |= values_in(images.masks, images.positions.tolist(), images.name)
    if not found or max(found) < 1:
        raise SurgeonError(f"The masks of {train.name!r} show one class, so there is nothing to learn.")
    if max(found) >= MOST_CLASSES:
        raise SurgeonError(
            f"The masks of {train.name!r} have the value {max(found)}, which is no class number.",
            f"There can be {MOST_CLASSES:,} classes; --void {max(found)} leaves such pixels out.",
        )
    names = [str(number) for number in range(max(found) + 1)]
    train, validation = (images.with_classes(names, known=False) for images in (train, validation))
    return train, validation, test.with_classes(names, known=False) if test is not None else None


def _check(train: ImageSet, images: ImageSet, limited_to: int | None) -> None:
    """Labels have to mean the same in both, and every one has to be trained."""
    if train.names_known and images.names_known and train.class_names != images.class_names:
        raise SurgeonError(
            f"The splits {train.split!r} and {images.split!r} of {train.name!r} name their classes differently."
        )
    unknown = np.setdiff1d(images.labels, train.labels)
    if len(unknown):
        names = listing((repr(_name(images, label)) for label in unknown), limit=3)
        what = "a class" if len(unknown) == 1 else f"{len(unknown)} classes"
        raise SurgeonError(
            f"The split {images.split!r} of {train.name!r} has {what} without a training image: {names}.",
            _all_classes(limited_to) or "Add training images, or remove the class.",
        )


def check_training_images(train: ImageSet, batch_size: int, limited_to: int | None = None) -> None:
    """Refuse classes without images, and batches that cannot be filled."""
    if train.masks is not None:
        _check_batch(train, batch_size)
        return
    empty = np.setdiff1d(np.arange(len(train.class_names)), train.labels)
    if len(empty):
        names = listing((repr(_name(train, label)) for label in empty), limit=3)
        what = "A class has" if len(empty) == 1 else f"{len(empty)} classes have"
        raise SurgeonError(
            f"{what} no training image in {train.name!r}: {names}.",
            _all_classes(limited_to) or "Add images, or remove the empty class folders.",
        )
    if len(np.unique(train.labels)) < 2:
        raise SurgeonError(f"{train.name!r} has only one class, so there is nothing to learn.")
    _check_batch(train, batch_size)


def _check_batch(train: ImageSet, batch_size: int) -> None:
    if batch_size > len(train):
        raise SurgeonError(
            f"A batch of {batch_size} is larger than the {count(len(train), 'training image')}.",
            f"Pass --batch-size {len(train)} or less.",
        )


def _all_classes(limited_to: int | None) -> str:
    """What to do if a limit may be to blame."""
    return f"--limit {limited_to} may leave classes out: raise it." if limited_to is not None else ""


def _name(images: ImageSet, label: int) -> str:
    return images.class_names[label] if label < len(images.class_names) else str(label)
