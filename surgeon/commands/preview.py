"""The `preview` command's operation: what augmentations make of a few images, to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from surgeon.augment.apply import augment_pictures
from surgeon.augment.base import Kind, augments
from surgeon.augment.pipeline import Augmentation, build_augmentation
from surgeon.commands.visible import axes_for, visible
from surgeon.core.errors import SurgeonError
from surgeon.core.media import Medium
from surgeon.data.hearing import preprocessing_for
from surgeon.data.images import ImageSet, UnreadableImageError
from surgeon.data.named_splits import MissingSplitError
from surgeon.data.opening import open_data
from surgeon.data.seeding import seed_from
from surgeon.data.stratified import Indices
from surgeon.models.origin import Preprocessing
from surgeon.report.gallery import Gallery, LabelShare, Row, Scales, Tile

VERSIONS = 4
GREY_MODES = ("1", "L", "LA", "I")
SMALL, LARGE = 64, 224
LEAST_SHARE = 0.005
"""Of a label: less would be told as 0%."""


@dataclass(frozen=True)
class Pictures:
    """A few images of a set, as different as possible, and how a network would see them."""

    images: tuple[Image.Image, ...]
    class_names: tuple[str, ...]
    """Of each image."""
    preprocessing: Preprocessing
    shown: int
    unreadable: tuple[str, ...] = ()
    """Images that cannot be read and were left out."""

    @property
    def targets(self) -> Tensor:
        """Every image is a class of its own: a mixed label then tells which image has which share in it."""
        return torch.eye(len(self.images))

    def augmented(self, augmentation: Augmentation, seed: int) -> tuple[list[npt.NDArray[np.uint8]], Tensor]:
        """What is shown of the augmented images, and the share that each image (column) has in each (row)."""
        numbers = range(len(self.images))
        images, shares = augment_pictures(augmentation, self.images, numbers, self.targets, self.preprocessing, seed)
        return visible(images[: self.shown], self.preprocessing), shares[: self.shown]

    @property
    def size(self) -> str:
        """Of what is shown, in words."""
        if self.preprocessing.sound is not None:
            return f"{self.preprocessing.sound.bands} mel bands, dark is quiet"
        return f"{self.preprocessing.input_size[-1]} px"

    @property
    def scales(self) -> Scales | None:
        """Axes of what is shown, if it has some."""
        return axes_for(self.preprocessing)


def open_training_data(data: str, split: str | None, image_column: str | None, label_column: str | None) -> ImageSet:
    """The training images if there are any, otherwise those of evaluation."""
    columns: dict[str, Any] = {"image_column": image_column, "label_column": label_column}
    if split is not None:
        return open_data(data, split, **columns)
    try:
        return open_data(data, "train", **columns)
    except MissingSplitError:
        return open_data(data, **columns)


def take_pictures(image_set: ImageSet, count: int, seed: int, input_size: int | None) -> Pictures:
    """Some images of different classes; a single one gets a companion to be mixed with, if there is any."""
    indices: list[int] = []
    images: list[Image.Image] = []
    unreadable: list[str] = []
    for index in _by_turns(image_set.labels, seed):
        try:
            images.append(image_set.image(index))
        except UnreadableImageError as error:
            unreadable.append(error.identity)
            continue
        indices.append(index)
        if len(images) == max(count, 2):
            break
    if not images:
        raise SurgeonError(f"None of the {image_set.medium.samples} of {image_set.name!r} can be read.")
    return Pictures(
        images=tuple(images),
        class_names=tuple(image_set.class_names[image_set.labels[index]] for index in indices),
        preprocessing=_preprocessing(image_set, images, input_size),
        shown=min(count, len(images)),
        unreadable=tuple(unreadable),
    )


def _preprocessing(image_set: ImageSet, images: Sequence[Image.Image], input_size: int | None) -> Preprocessing:
    """That of a network for pictures like these; for clips that of one which learns from the set."""
    if image_set.medium is Medium.SOUND:
        heard = preprocessing_for(image_set)
        return heard if input_size is None else heard.model_copy(update={"input_size": (1, input_size, input_size)})
    side = min(images[0].size)
    size = input_size or (side if side <= SMALL else LARGE)
    channels = 1 if all(image.mode in GREY_MODES for image in images) else 3
    half = (0.5,) * channels
    return Preprocessing(input_size=(channels, size, size), mean=half, std=half)


def preview(spec: str, pictures: Pictures, about: str, seed: int) -> Gallery:
    """A column for each image: with its partner and their mixture, or with several augmented versions of it."""
    augmentation = build_augmentation([spec], pictures.preprocessing)
    if augmentation.mixing and len(pictures.images) < 2:
        raise SurgeonError(f"{spec} mixes images, so it needs two of them, and there is one.")
    rows = _mixture(pictures, augmentation, seed) if augmentation.mixing else _versions(pictures, augmentation, seed)
    return Gallery(f"{spec} · {about}", tuple(rows), pictures.scales)


def preview_all(pictures: Pictures, about: str, seed: int) -> Gallery:
    """A row for each augmentation, all of the same images."""
    originals = _originals(pictures, seed)
    partners: list[int | None] = [None] * pictures.shown
    rows = []
    fitting = [name for name in augments if pictures.preprocessing.medium in augments[name].media]
    for name in sorted(fitting, key=lambda name: (list(Kind).index(augments[name].kind), name)):
        augmentation = build_augmentation([name], pictures.preprocessing)
        if augmentation.mixing and len(pictures.images) < 2:
            continue
        images, shares = pictures.augmented(augmentation, seed)
        mixes = augments[name].kind is Kind.MIX
        if mixes:  # all of them draw the partners first, and so the same ones
            partners = [_partner(shares[own], own) if p is None else p for own, p in enumerate(partners)]
        labels = [_label(pictures, row, own) if mixes else () for own, row in enumerate(shares)]
        tiles = (Tile(image, label) for image, label in zip(images, labels, strict=True))
        rows.append(Row(name, augments[name].kind.value, tuple(tiles)))
    first = [Row("original", "", originals[: pictures.shown])]
    if len(pictures.images) > 1:
        first.append(Row("partner", "in a mix", _of_partners(originals, partners)))
    return Gallery(f"All augmentations · {about}", (*first, *rows), pictures.scales)


def _versions(pictures: Pictures, augmentation: Augmentation, seed: int) -> Iterator[Row]:
    yield Row("original", "", _originals(pictures, seed)[: pictures.shown])
    for version in range(1, VERSIONS + 1):
        images, _ = pictures.augmented(augmentation, seed_from(seed, version))
        yield Row("augmented", f"version {version}", tuple(Tile(image) for image in images))


def _mixture(pictures: Pictures, augmentation: Augmentation, seed: int) -> list[Row]:
    mixed, shares = pictures.augmented(augmentation, seed)
    originals = _originals(pictures, seed)
    partners = [_partner(row, own) for own, row in enumerate(shares)]
    labels = [_label(pictures, row, own) for own, row in enumerate(shares)]
    return [
        Row("image", "", originals[: pictures.shown]),
        Row("partner", "", _of_partners(originals, partners)),
        Row("mixed", "", tuple(Tile(image, label) for image, label in zip(mixed, labels, strict=True))),
    ]


def _label(pictures: Pictures, shares: Tensor, own: int) -> tuple[LabelShare, ...]:
    """The classes in a label, the image's own first, the others by their share."""
    order = sorted(range(len(shares)), key=lambda index: (index != own, -float(shares[index])))
    found = (LabelShare(pictures.class_names[index], float(shares[index]), place) for place, index in enumerate(order))
    return tuple(share for share in found if share.weight >= LEAST_SHARE)


def _partner(shares: Tensor, own: int) -> int | None:
    others = shares.index_fill(0, torch.tensor(own), 0)
    return int(others.argmax()) if float(others.max()) >= LEAST_SHARE else None


def _originals(pictures: Pictures, seed: int) -> tuple[Tile, ...]:
    """All images, also one that is only there to be mixed with."""
    everything = replace(pictures, shown=len(pictures.images))
    images, _ = everything.augmented(build_augmentation([], pictures.preprocessing), seed)
    return tuple(
        Tile(image, (LabelShare(name, 1.0),)) for image, name in zip(images, pictures.class_names, strict=True)
    )


def _of_partners(originals: Sequence[Tile], partners: Sequence[int | None]) -> tuple[Tile | None, ...]:
    return tuple(None if partner is None else _recoloured(originals[partner]) for partner in partners)


def _recoloured(tile: Tile) -> Tile:
    return Tile(tile.pixels, tuple(share._replace(colour=1) for share in tile.label))


def _by_turns(labels: Indices, seed: int) -> Iterator[int]:
    """Indices in random order, but one of every class before the second of any."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = np.argsort(labels[shuffled], kind="stable")
    classes = labels[shuffled][by_class]
    turn = np.empty(len(labels), dtype=np.int64)
    turn[by_class] = np.arange(len(labels)) - np.searchsorted(classes, classes)
    for place in np.argsort(turn, kind="stable"):
        yield int(shuffled[place])
