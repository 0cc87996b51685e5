"""A chain of augmentations, made for one network: `--augment vh-mixup:p=0.5 --augment cutout`.

Whatever the order in which they are named, they run in the order that their kinds have: the crop,
then what works on single images, then what works on batches. Among the same kind the order is kept.
`"vh-mixup|cutmix"` takes one of them for each batch, at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surgeon.augment.base import BatchOperation, ImageOperation, Kind, augments
from surgeon.augment.draws import generator_device
from surgeon.augment.mixing import Mix
from surgeon.core.errors import SurgeonError, listing
from surgeon.core.specs import parse_spec

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from surgeon.models.sources import Preprocessing


Tell = Callable[["Tensor"], None]


@dataclass(frozen=True)
class Augmentation:
    """What is done to each image, and then to each batch."""

    geometry: ImageOperation
    """Any picture to one of the network's size."""
    image: tuple[ImageOperation, ...] = ()
    batch: tuple[BatchOperation, ...] = ()
    mixing: tuple[BatchOperation, ...] = ()

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


def build_augmentation(specs: Sequence[str], preprocessing: Preprocessing, crop: str | None = None) -> Augmentation:
    """The augmentation that the specs ask for; where they say nothing of the crop, `crop` or that of evaluation."""
    from surgeon.augment.geometry import evaluation_geometry

    made: dict[Kind, list[Any]] = {kind: [] for kind in Kind}
    for kind, operation in _operations(specs, preprocessing):
        made[kind].append(operation)
    if crop is not None and not made[Kind.GEOMETRY]:
        made[Kind.GEOMETRY] = [operation for _, operation in _operations([crop], preprocessing)]
    if len(made[Kind.GEOMETRY]) > 1:
        raise SurgeonError("Only one augmentation can choose the crop.", f"Given: {listing(specs)}.")
    return Augmentation(
        geometry=made[Kind.GEOMETRY][0] if made[Kind.GEOMETRY] else evaluation_geometry(preprocessing),
        image=tuple(made[Kind.IMAGE]),
        batch=tuple(made[Kind.BATCH]),
        mixing=tuple(made[Kind.MIX]),
    )


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
    from surgeon.models.sources import Preprocessing

    # Batch augmentations go by the size of the batch they are given.
    operations = _batch_operations(specs, Preprocessing(input_size=(3, 224, 224), mean=(0, 0, 0), std=(1, 1, 1)))

    def mix(images: Tensor, targets: Tensor, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        return _in_turn(images, soft(targets, classes), generator, [operation for _, operation in operations])

    return mix


def _operations(specs: Sequence[str], preprocessing: Preprocessing) -> Iterator[tuple[Kind, Any]]:
    for spec in specs:
        if "|" in spec:
            yield _one_of(spec, preprocessing)
            continue
        name, options = parse_spec(spec)
        augment = augments[name]
        made = augment.build(augment.configure(options), preprocessing)
        if augment.kind is Kind.POLICY:
            yield from _operations(made, preprocessing)
        else:
            yield augment.kind, made


def _batch_operations(specs: Sequence[str], preprocessing: Preprocessing) -> list[tuple[Kind, BatchOperation]]:
    """The operations that the specs ask for, none of which may work on single images."""
    found = list(_operations(specs, preprocessing))
    if any(kind not in (Kind.MIX, Kind.BATCH) for kind, _ in found):
        raise SurgeonError(
            f"{listing(map(repr, specs))} does not work on batches, but on single images.",
            "`surgeon ls augments` says what each one works on.",
        )
    return found


def _one_of(spec: str, preprocessing: Preprocessing) -> tuple[Kind, BatchOperation]:
    """One of several for each batch, all equally likely; `none` leaves the batch as it is.

    If one of them mixes, the whole choice counts as mixing.
    """
    found = [
        [] if choice.strip() == "none" else _batch_operations([choice], preprocessing) for choice in spec.split("|")
    ]
    kind = Kind.MIX if any(kind is Kind.MIX for choice in found for kind, _ in choice) else Kind.BATCH
    return kind, OneOf(tuple(tuple(operation for _, operation in choice) for choice in found))


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
