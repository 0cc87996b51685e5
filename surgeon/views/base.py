"""What a set of views is: views of a batch of images that are already decoded and normalised.

A family of views is made for one network. It states the preprocessing that its input batches need,
which is the network's own unless the views are cut out of larger images.

This module and all others of this folder import torch only inside functions, so that `--help` can
name every family without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgeon.core.errors import SurgeonError
from surgeon.core.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.sources import Preprocessing

Generate = Callable[["Tensor"], Iterator["Tensor"]]


@dataclass(frozen=True)
class Views:
    """The views of one family for one network.

    `preprocessing` is what the input batches must have gone through, `network_size` the height and
    width that the network was made for. Every view is a batch of the same images in the same order;
    it may share memory with the input batch.
    """

    name: str
    count: int
    network_size: tuple[int, ...]
    preprocessing: Preprocessing
    generate: Generate

    def of(self, batch: Tensor) -> Iterator[Tensor]:
        """The views of a batch, one after the other."""
        expected = self.preprocessing.input_size[-2:]
        if tuple(batch.shape[-2:]) != expected:
            height, width = batch.shape[-2:]
            raise SurgeonError(
                f"The views {self.name!r} need images of {expected[0]}x{expected[1]}, not {height}x{width}.",
                "Load the images with the preprocessing that the views state.",
            )
        return self.generate(batch)


@dataclass(frozen=True)
class ViewFamily:
    """One registered family; `make` returns its preprocessing and generator for a network."""

    name: str
    summary: str
    count: int
    make: Callable[[Preprocessing], tuple[Preprocessing, Generate]]

    def for_network(self, preprocessing: Preprocessing) -> Views:
        """The views for a network that expects images of the given preprocessing."""
        return Views(self.name, self.count, preprocessing.input_size[-2:], *self.make(preprocessing))


views: Registry[ViewFamily] = Registry("view", "surgeon.views", ViewFamily)


def register(
    name: str, *, count: int
) -> Callable[[Callable[[Preprocessing], tuple[Preprocessing, Generate]]], ViewFamily]:
    """Register the decorated function as a family; the first line of its docstring is the summary."""

    def wrap(make: Callable[[Preprocessing], tuple[Preprocessing, Generate]]) -> ViewFamily:
        summary = (make.__doc__ or "").strip().splitlines()[0]
        return views.register(name)(ViewFamily(name, summary, count, make))

    return wrap


def crops(batch: Tensor, size: tuple[int, int], offsets: list[tuple[int, int]]) -> Iterator[Tensor]:
    """Windows of a batch at (row, column) offsets; they share its memory."""
    height, width = size
    for top, left in offsets:
        yield batch[..., top : top + height, left : left + width]


def corners_and_centre(margin: tuple[int, int]) -> list[tuple[int, int]]:
    """Offsets of the four corners and the centre of what is larger by `margin`, in torchvision's order."""
    down, right = margin
    return [(0, 0), (0, right), (down, 0), (down, right), (round(down / 2), round(right / 2))]


def flipped(batch: Tensor) -> Tensor:
    """Every image mirrored left to right."""
    return batch.flip(-1)


def enlarged(preprocessing: Preprocessing, size: tuple[int, int]) -> Preprocessing:
    """Preprocessing that scales the image until it covers `size` and takes the centre, with nothing else cut off."""
    return preprocessing.model_copy(update={"input_size": (preprocessing.input_size[0], *size), "crop_pct": 1.0})
