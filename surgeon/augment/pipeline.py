"""A chain of augmentations, made for one network: `--augment vh-mixup:p=0.5 --augment cutout`.

Whatever the order in which they are named, they run in the order that their kinds have: the crop,
then what works on single images, then what works on batches. Among the same kind the order is kept.
`"vh-mixup|cutmix"` takes one of them for each batch, at random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surgeon.augment.base import BatchOperation, ImageOperation, Kind, augments
from surgeon.errors import SurgeonError, listing
from surgeon.options import parse_spec

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from surgeon.models.sources import Preprocessing


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

    def of_batch(self, images: Tensor, targets: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        """Augment normalised images and soft targets."""
        for operation in (*self.mixing, *self.batch):
            images, targets = operation(images, targets, generator)
        return images, targets


def build(specs: Sequence[str], preprocessing: Preprocessing, crop: str | None = None) -> Augmentation:
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


def _operations(specs: Sequence[str], preprocessing: Preprocessing) -> Iterator[tuple[Kind, Any]]:
    for spec in specs:
        if "|" in spec:
            yield Kind.MIX, _one_of(spec, preprocessing)
            continue
        name, options = parse_spec(spec)
        augment = augments[name]
        made = augment.build(augment.configure(options), preprocessing)
        if augment.kind is Kind.POLICY:
            yield from _operations(made, preprocessing)
        else:
            yield augment.kind, made


def _one_of(spec: str, preprocessing: Preprocessing) -> BatchOperation:
    """One of several for each batch, all equally likely; `none` leaves the batch as it is."""
    choices: list[BatchOperation] = []
    for choice in spec.split("|"):
        found = [] if choice.strip() == "none" else list(_operations([choice], preprocessing))
        if any(kind not in (Kind.MIX, Kind.BATCH) for kind, _ in found):
            raise SurgeonError(f"{choice!r} does not work on batches, so it cannot be one choice in {spec!r}.")
        choices.append(found[0][1] if found else lambda images, targets, generator: (images, targets))

    def choose(images: Tensor, targets: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        import torch

        chosen = int(torch.randint(len(choices), (), generator=generator, device=generator_device(generator)))
        return choices[chosen](images, targets, generator)

    return choose
