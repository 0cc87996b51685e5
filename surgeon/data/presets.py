"""Known data sets on the Hugging Face hub, with the split rules that the papers use.

Listing them imports neither torch nor numpy nor the `datasets` library.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy.typing as npt

    from surgeon.data.stratified import Indices

SEED = 0
SPLITS = ("train", "validation", "test")


class SplitRule(Protocol):
    """How the splits a user asks for are cut from those on the hub."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits a user can ask for."""

    def sources(self, split: str) -> tuple[str, ...]:
        """The hub's splits that have to be read for one split."""

    def choose(self, labels: npt.ArrayLike, split: str) -> Indices | None:
        """Which images of the sources belong to the split; None for all of them."""


@dataclass(frozen=True)
class Official:
    """The splits as they are published."""

    splits: tuple[str, ...] = SPLITS

    def sources(self, split: str) -> tuple[str, ...]:
        return (split,)

    def choose(self, labels: npt.ArrayLike, split: str) -> Indices | None:  # noqa: ARG002
        return None


@dataclass(frozen=True)
class HeldOut:
    """No validation images are published: a stratified part of the training images, by number or share, is kept."""

    images: int | float
    splits: tuple[str, ...] = SPLITS

    def sources(self, split: str) -> tuple[str, ...]:
        return ("test",) if split == "test" else ("train",)

    def choose(self, labels: npt.ArrayLike, split: str) -> Indices | None:
        from surgeon.data.stratified import limit, rest

        if split == "test":
            return None
        size = len(labels)  # type: ignore[arg-type]
        held_out = limit(labels, round(self.images * size) if isinstance(self.images, float) else self.images, SEED)
        return held_out if split == "validation" else rest(size, held_out)


@dataclass(frozen=True)
class PerClass:
    """No splits are published: a fixed number of images of every class for each."""

    train: int
    validation: int
    test: int
    splits: tuple[str, ...] = SPLITS

    def sources(self, split: str) -> tuple[str, ...]:  # noqa: ARG002
        return SPLITS  # those of the copy on the hub are its uploader's own, and are pooled

    def choose(self, labels: npt.ArrayLike, split: str) -> Indices | None:
        from surgeon.data.stratified import per_class

        parts = per_class(labels, (self.train, self.validation, self.test), SEED)
        return dict(zip(SPLITS, parts, strict=True))[split]


@dataclass(frozen=True)
class Preset:
    """A data set on the hub, its columns, and its split rule."""

    name: str
    summary: str
    hub: str
    config: str | None = None
    image_column: str = "image"
    label_column: str = "label"
    rule: SplitRule = field(default_factory=Official)
    default_split: str = "test"


_ALL = (
    Preset(
        "cifar10",
        "60,000 colour images of 32x32 pixels, 10 classes; 5,000 training images are kept for validation",
        "uoft-cs/cifar10",
        "plain_text",
        image_column="img",
        rule=HeldOut(5000),
    ),
    Preset(
        "cifar100",
        "60,000 colour images of 32x32 pixels, 100 classes; 5,000 training images are kept for validation",
        "uoft-cs/cifar100",
        "cifar100",
        image_column="img",
        label_column="fine_label",
        rule=HeldOut(5000),
    ),
    Preset(
        "svhn",
        "99,289 house number digits of 32x32 pixels; 5,000 training images are kept for validation",
        "ufldl-stanford/svhn",
        "cropped_digits",
        rule=HeldOut(5000),
    ),
    Preset(
        "mnist",
        "70,000 grey digits of 28x28 pixels; 5,000 training images are kept for validation",
        "ylecun/mnist",
        "mnist",
        rule=HeldOut(5000),
    ),
    Preset(
        "fashion-mnist",
        "70,000 grey garments of 28x28 pixels, 10 classes; 5,000 training images are kept for validation",
        "zalando-datasets/fashion_mnist",
        "fashion_mnist",
        rule=HeldOut(5000),
    ),
    Preset(
        "caltech256",
        "photographs of 257 classes; 40, 10 and 30 images of each for training, validation and test",
        "ilee0022/Caltech-256",
        rule=PerClass(train=40, validation=10, test=30),
    ),
    Preset(
        "flowers102",
        "8,189 photographs of 102 flowers, official splits",
        "dpdl-benchmark/oxford_flowers102",
    ),
    Preset(
        "cub200",
        "11,788 photographs of 200 birds; a quarter of the training images is kept for validation",
        "bentrevett/caltech-ucsd-birds-200-2011",
        rule=HeldOut(0.25),
    ),
    Preset(
        "imagenet-1k",
        "1.3 million photographs of 1,000 classes; its test labels are not public",
        "ILSVRC/imagenet-1k",
        rule=Official(("train", "validation")),
        default_split="validation",
    ),
)

PRESETS = {preset.name: preset for preset in _ALL}
