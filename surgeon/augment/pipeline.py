"""A chain of augmentations, made for one network: `--augment vh-mixup:p=0.5 --augment cutout`.

Whatever the order in which they are named, they run in the order that their kinds have: the crop,
then what works on single images, then what works on batches. Among the same kind the order is kept.
`"vh-mixup|cutmix"` takes one of them for each batch, at random, and `"randaugment|augmix|none"` one for each image.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surgeon.augment.base import BatchOperation, ImageOperation, JointOperation, Kind, augments
from surgeon.augment.draws import generator_device
from surgeon.augment.mixing import Mix
from surgeon.core.errors import SurgeonError, listing
from surgeon.core.specs import parse_spec

if TYPE_CHECKING:
    from PIL import Image
    from torch import Generator, Tensor

    from surgeon.models.origin import Preprocessing


Tell = Callable[["Tensor"], None]


@dataclass(frozen=True)
class Augmentation:
    """What is done to each image, and then to each batch."""

    geometry: ImageOperation
    """Any picture to one of the network's size."""
    image: tuple[ImageOperation, ...] = ()
    batch: tuple[BatchOperation, ...] = ()
    mixing: tuple[BatchOperation, ...] = ()
    joint: JointOperation | None = None
    """Where images have masks, the crop of both, in the place of `geometry`."""

    def without_mixing(self) -> Augmentation:
        """The same, with every image its own: for the last epochs."""
        return replace(self, mixing=())

    def of_batch(
        self,
        images: Tensor,
        targets: Tensor,
        generator: Generator | None,
        tell: Tell | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Augment normalised images and soft targets; `tell` is told who was mixed with whom, by each mix."""
        images, targets = _in_turn(images, targets, generator, self.mixing, tell)
        return _in_turn(images, targets, generator, self.batch)


def build_augmentation(
    specs: Sequence[str], preprocessing: Preprocessing, crop: str | None = None, *, masks: bool = False
) -> Augmentation:
    """The augmentation that the specs ask for; where they say nothing of the crop, `crop` or that of evaluation.

    Images with masks are cut together with these, and take only what leaves the rest in its place.
    """
    from surgeon.augment.geometry import evaluation_geometry
    from surgeon.augment.masked import check_for_masks, joint_crop

    if masks:
        check_for_masks(specs, preprocessing)
    made: dict[Kind, list[Any]] = {kind: [] for kind in Kind}
    for one in _operations(specs, preprocessing):
        made[one.kind].append(one.operation)
    if crop is not None and not made[Kind.GEOMETRY]:
        made[Kind.GEOMETRY] = [one.operation for one in _operations([crop], preprocessing)]
    if len(made[Kind.GEOMETRY]) > 1:
        raise SurgeonError("Only one augmentation can choose the crop.", f"Given: {listing(specs)}.")
    return Augmentation(
        geometry=made[Kind.GEOMETRY][0] if made[Kind.GEOMETRY] else evaluation_geometry(preprocessing),
        image=tuple(made[Kind.IMAGE]),
        batch=tuple(made[Kind.BATCH]),
        mixing=tuple(made[Kind.MIX]),
        joint=joint_crop(specs, preprocessing, crop) if masks else None,
    )


def chooses_crop(specs: Sequence[str], preprocessing: Preprocessing) -> bool:
    """Whether one of the augmentations says how pictures are cropped."""
    return any(one.kind is Kind.GEOMETRY for one in _operations(specs, preprocessing))


def mixer(*specs: str, classes: int) -> BatchOperation:
    """Mixes and other batch augmentations for a training loop of one's own.

    Args:
        specs: As after `--augment`.
        classes: How many classes the soft targets have.

    What it makes is called with images (N, C, H, W), labels and a generator or None, and answers images
    and soft targets. Labels are class numbers (N,) or shares (N, classes). Images are floats; integers
    only for what does not average them, and raised for with `SurgeonError` by what does.
    """
    from surgeon.augment.mixing import soft
    from surgeon.models.origin import Preprocessing

    # Batch augmentations go by the size of the batch they are given.
    operations = _batch_operations(specs, Preprocessing(input_size=(3, 224, 224), mean=(0, 0, 0), std=(1, 1, 1)))

    def mix(images: Tensor, targets: Tensor, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        return _in_turn(images, soft(targets, classes), generator, operations)

    return mix


@dataclass(frozen=True)
class _Made:
    """An operation, and the spec that it was made of."""

    kind: Kind
    spec: str
    operation: Any


_Chain = list[_Made]
ON_BATCHES, ON_SINGLE_IMAGES = {Kind.MIX, Kind.BATCH}, {Kind.GEOMETRY, Kind.IMAGE}


def _operations(specs: Sequence[str], preprocessing: Preprocessing) -> Iterator[_Made]:
    for spec in specs:
        if "|" in spec:
            yield from _one_of(spec, preprocessing)
            continue
        name, options = parse_spec(spec)
        augment = augments[name]
        config = augment.configure(options)
        made = augment.built(config, preprocessing)
        if augment.kind is Kind.POLICY:
            yield from _operations(made, preprocessing)
        else:
            yield _Made(augment.kind, augment.with_options(config), made)


def _batch_operations(specs: Sequence[str], preprocessing: Preprocessing) -> list[BatchOperation]:
    """The operations that the specs ask for, none of which may work on single images."""
    found = list(_operations(specs, preprocessing))
    if not _kinds(found) <= ON_BATCHES:
        raise SurgeonError(
            f"{listing(map(repr, specs))} does not work on batches, but on single images.",
            "`surgeon ls augments` says what each one works on.",
        )
    return [one.operation for one in found]


def _one_of(spec: str, preprocessing: Preprocessing) -> Iterator[_Made]:
    """A choice, all equally likely, for each batch or for each image; `none` leaves it as it is."""
    chains = [
        [] if choice.strip() == "none" else list(_operations([choice], preprocessing)) for choice in spec.split("|")
    ]
    kinds = _kinds(one for chain in chains for one in chain)
    if kinds <= ON_BATCHES:
        # If one of them mixes, the whole choice counts as mixing.
        kind = Kind.MIX if Kind.MIX in kinds else Kind.BATCH
        yield _Made(kind, spec, OneOf(tuple(map(_only_operations, chains))))
    elif kinds <= ON_SINGLE_IMAGES:
        yield from _one_for_each_image(spec, chains, preprocessing)
    else:
        single, batches = (
            dict.fromkeys(one.spec for chain in chains for one in chain if one.kind in group)
            for group in (ON_SINGLE_IMAGES, ON_BATCHES)
        )
        raise SurgeonError(
            f"{spec!r} cannot choose: {listing(single)} would be chosen for each image, and {listing(batches)}, "
            "which does not work on single images, for each batch.",
            "Split it into two choices, one of each kind: `surgeon ls augments` says what each one works on.",
        )


def _one_for_each_image(spec: str, chains: Sequence[_Chain], preprocessing: Preprocessing) -> Iterator[_Made]:
    """A choice of crops, or of what is done after a crop that is the same for all, as that of a policy."""
    from surgeon.augment.geometry import evaluation_geometry

    crops = {one.spec: one for chain in chains for one in chain if one.kind is Kind.GEOMETRY}
    afterwards = [[one for one in chain if one.kind is Kind.IMAGE] for chain in chains]
    if not any(afterwards):
        uncropped = (evaluation_geometry(preprocessing),)
        choices = tuple(_only_operations(chain) or uncropped for chain in chains)
        yield _Made(Kind.GEOMETRY, spec, OneForEachImage(choices))
        return
    if len(crops) > 1:
        raise SurgeonError(
            f"{spec!r} cannot choose between crops ({listing(crops)}) together with what follows them.",
            "Give all choices the same crop, or split it into two choices.",
        )
    yield from crops.values()
    yield _Made(Kind.IMAGE, spec, OneForEachImage(tuple(map(_only_operations, afterwards))))


def _kinds(made: Iterable[_Made]) -> set[Kind]:
    return {one.kind for one in made}


def _only_operations(chain: _Chain) -> tuple[Any, ...]:
    return tuple(one.operation for one in chain)


@dataclass(frozen=True)
class OneForEachImage:
    """Operations of which each image gets one, or a chain of several, all equally likely."""

    choices: tuple[tuple[ImageOperation, ...], ...]

    def __call__(self, image: Image.Image) -> Image.Image:
        # Of Python's generator: seeded alike, numpy's and torch's draw the same bits, so that what is chosen would
        # decide on what RandAugment, say, then draws from the other.
        for operation in random.choice(self.choices):
            image = operation(image)
        return image


@dataclass(frozen=True)
class OneOf:
    """Operations of which each batch gets one, or a chain of several, all equally likely."""

    choices: tuple[tuple[BatchOperation, ...], ...]

    def __call__(
        self, images: Tensor, targets: Tensor, generator: Generator | None, tell: Tell | None = None
    ) -> tuple[Tensor, Tensor]:
        import torch

        chosen = int(torch.randint(len(self.choices), (), generator=generator, device=generator_device(generator)))
        return _in_turn(images, targets, generator, self.choices[chosen], tell)


def _in_turn(
    images: Tensor,
    targets: Tensor,
    generator: Generator | None,
    operations: Iterable[BatchOperation],
    tell: Tell | None = None,
) -> tuple[Tensor, Tensor]:
    for operation in operations:
        if isinstance(operation, OneOf):
            images, targets = operation(images, targets, generator, tell)
        elif tell is not None and isinstance(operation, Mix):
            images, targets, permutation = operation.with_partners(images, targets, generator)
            tell(permutation)
        else:
            images, targets = operation(images, targets, generator)
    return images, targets
