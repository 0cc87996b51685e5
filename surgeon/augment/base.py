"""What an augmentation is: something done to images in training, before the network sees them.

Three kinds share one list of names. An *image* augmentation works on one decoded image and keeps its
label. A *batch* augmentation works on a batch of normalised images; a *mix* is one that also mixes
the labels. A *policy* is a name for several of them, with the values of its paper.

This module and all others of this folder import torch only inside functions, so that `--help` and
`ls` can name every augmentation without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from surgeon.core.entry import Entry, summary_of
from surgeon.core.errors import SurgeonError, listing
from surgeon.core.media import Medium
from surgeon.core.registry import Registry
from surgeon.core.specs import Options, option, parse_spec

if TYPE_CHECKING:
    from PIL import Image
    from torch import Generator, Tensor

    from surgeon.models.origin import Preprocessing

__all__ = [
    "Augment",
    "AugmentConfig",
    "BatchOperation",
    "ImageOperation",
    "Kind",
    "augments",
    "option",
    "register",
]

ImageOperation = Callable[["Image.Image"], "Image.Image"]
"""Draws from the global generators of random, numpy and torch, as timm's and torchvision's own do."""

JointOperation = Callable[["Image.Image", "Tensor"], "tuple[Image.Image, Tensor]"]
"""A picture and its mask (H, W) to those of the network's size; draws as an ImageOperation does."""

BatchOperation = Callable[["Tensor", "Tensor", "Generator | None"], "tuple[Tensor, Tensor]"]
"""Normalised images (N, C, H, W) and soft targets (N, classes) to the same, neither changed in place."""


class Kind(StrEnum):
    """What an augmentation works on."""

    GEOMETRY = "geometry"
    """One picture of any size, of which it cuts out what the network sees."""
    IMAGE = "image"
    """One image of the network's size."""
    BATCH = "batch"
    """A batch of normalised images."""
    MIX = "mix"
    """A batch of normalised images and their labels."""
    POLICY = "policy"
    """Stands for several others."""


CROPS = {Medium.IMAGE: "standard", Medium.SOUND: "time-shift"}
"""What training crops with, where it is not told how."""

_WORKS_ON = {
    Kind.GEOMETRY: "picture: the crop",
    Kind.IMAGE: "image",
    Kind.BATCH: "batch",
    Kind.MIX: "batch and labels",
    Kind.POLICY: "stands for several",
}


class AugmentConfig(Options):
    """Options of one augmentation."""


@dataclass(frozen=True)
class Augment(Entry[AugmentConfig]):
    """One registered augmentation.

    `build` makes the operation for a network's preprocessing: an ImageOperation, a BatchOperation,
    or, for a policy, the specs that it stands for (a tuple of strings).
    """

    noun = "augment"
    listed = "augments"

    kind: Kind
    build: Callable[[Any, Preprocessing], Any]
    on: tuple[Medium, ...] = ()
    """Of what; batches are normalised numbers, whatever they were made of."""
    joint: Callable[[Any, Preprocessing], JointOperation] | None = None
    """What makes the operation on a picture and its mask together, of a crop that masks can follow."""
    keeps_places: bool = False
    """Whether what an image shows stays where it is, so that its mask is still true."""

    def facts(self) -> dict[str, Any]:
        works_on = _WORKS_ON[self.kind] if Medium.IMAGE in self.media else "clips of sound"
        return {"kind": self.kind.value, "works on": works_on}

    @property
    def media(self) -> tuple[Medium, ...]:
        """What it works on: if it does not say so, batches of anything, and single images."""
        return self.on or (tuple(Medium) if self.kind in (Kind.BATCH, Kind.MIX) else (Medium.IMAGE,))

    def built(self, config: AugmentConfig, preprocessing: Preprocessing) -> Any:
        """The operation for a network that takes what this works on."""
        if preprocessing.medium not in self.media:
            fitting = [name for name in augments if augments[name].on == (preprocessing.medium,)]
            raise SurgeonError(
                f"The augmentation {self.name!r} is for {self.media[0].samples}, not for "
                f"{preprocessing.medium.samples}.",
                f"Use {listing(fitting)}, a mix or another batch augmentation." if fitting else "",
            )
        return self.build(config, preprocessing)


augments: Registry[Augment] = Registry(Augment.noun, "surgeon.augment", Augment)


def check_augments(specs: Iterable[str]) -> None:
    """Refuse unknown names and options, before anything heavy is imported."""
    for spec in specs:
        for choice in spec.split("|"):
            if "|" in spec and choice.strip() == "none":
                continue
            name, options = parse_spec(choice)
            augments[name].configure(options)


def register(
    name: str,
    *,
    kind: Kind,
    paper: str,
    config: type[AugmentConfig] = AugmentConfig,
    on: tuple[Medium, ...] = (),
    joint: Callable[[Any, Preprocessing], JointOperation] | None = None,
    keeps_places: bool = False,
) -> Callable[[Callable[[Any, Preprocessing], Any]], Augment]:
    """Register the decorated function, which builds the operation; its docstring's first line is the summary.

    Args:
        name: What people type after `--augment`.
        kind: What it works on.
        paper: Where it is from.
        config: Its options.
        on: Of what single samples it is, if not of images.
        joint: Of a crop that masks can follow, what builds the operation on both.
        keeps_places: Whether what an image shows stays where it is, so that its mask is still true.
    """

    def wrap(build: Callable[[Any, Preprocessing], Any]) -> Augment:
        summary = summary_of(build, Augment.noun, name)
        return augments.register(name)(Augment(name, summary, paper, config, kind, build, on, joint, keeps_places))

    return wrap
