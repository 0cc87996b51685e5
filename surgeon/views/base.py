"""What a set of views is: views of a batch of images that are already decoded and normalised.

A family of views is made for one network. It states the preprocessing that its input batches need,
which is the network's own unless the views are cut out of larger images.

This module and all others of this folder import torch only inside functions, so that `--help` can
name every family without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surgeon.core.entry import Entry, summary_of
from surgeon.core.errors import SurgeonError
from surgeon.core.media import Medium
from surgeon.core.registry import Registry
from surgeon.core.specs import Options, option, parse_spec

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.origin import Preprocessing

__all__ = [
    "Generate",
    "ViewConfig",
    "ViewFamily",
    "Views",
    "check_views",
    "corners_and_centre",
    "crops",
    "enlarged",
    "flipped",
    "option",
    "register",
    "views",
    "views_for",
]

Generate = Callable[["Tensor"], Iterator["Tensor"]]


class ViewConfig(Options):
    """Options of one family of views."""


Undo = Callable[["Tensor", int, tuple[int, ...]], "Tensor"]
"""From masks (N, classes, h, w) predicted for a view, its number, and the image's (height, width), to the image's."""

Make = Callable[[Any, "Preprocessing"], "tuple[Preprocessing, Generate]"]
"""From a family's options and a network's preprocessing to that of the batches, and what makes the views of one."""


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
    undo: Undo | None = None

    def restored(self, prediction: Tensor, number: int) -> Tensor:
        """What was predicted for a view, as it is for the image: classes stay, masks go back to their places."""
        if prediction.dim() == 2:
            return prediction
        if self.undo is None:
            raise SurgeonError(
                f"The views {self.name!r} cut away parts of the image, so masks that are predicted for them cannot be "
                "put together.",
                "Use flip or multi-scale.",
            )
        return self.undo(prediction, number, self.network_size)

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
class ViewFamily(Entry[ViewConfig]):
    """One registered family; `make` returns its preprocessing and generator for a network, `number` how many views."""

    noun = "view"
    listed = "views"

    number: Callable[[Any], int]
    make: Make
    undo: Undo | None = None
    """Takes masks back from a view to the image; None if that is not possible."""

    @property
    def count(self) -> int:
        """How many views there are, unless options say otherwise."""
        return self.number(self.config())

    def for_network(self, preprocessing: Preprocessing, options: Mapping[str, Any] | None = None) -> Views:
        """The views for a network that expects images of the given preprocessing."""
        config = self.configure(options or {})
        made = self.make(config, preprocessing)
        return Views(self.name, self.number(config), preprocessing.input_size[-2:], *made, self.undo)

    def facts(self) -> dict[str, Any]:
        return {"views": self.count}


views: Registry[ViewFamily] = Registry(ViewFamily.noun, "surgeon.views", ViewFamily)


def check_views(spec: str) -> None:
    """Refuse unknown names and options, before anything heavy is imported."""
    name, options = parse_spec(spec)
    views[name].configure(options)


def views_for(spec: str, preprocessing: Preprocessing) -> Views:
    """The views that `name` or `name:key=value,…` means for a network of the given preprocessing."""
    name, options = parse_spec(spec)
    if preprocessing.medium is not Medium.IMAGE:
        raise SurgeonError(
            f"The views {name!r} are for images, and this network takes {preprocessing.medium.samples}.",
            "Leave --tta out.",
        )
    return views[name].for_network(preprocessing, options)


def register(
    name: str,
    *,
    count: int | Callable[[Any], int],
    config: type[ViewConfig] = ViewConfig,
    paper: str = "",
    undo: Undo | None = None,
) -> Callable[[Make], ViewFamily]:
    """Register the decorated function as a family; the first line of its docstring is the summary.

    Args:
        name: What people type after `--tta`.
        count: How many views an image has; a function of the options if it depends on them.
        config: The options.
        paper: Where it is from.
        undo: Takes masks that are predicted for a view back to the image; without it, the views are for classes alone.
    """

    def wrap(make: Make) -> ViewFamily:
        number = count if callable(count) else (lambda _: count)
        summary = summary_of(make, ViewFamily.noun, name)
        return views.register(name)(ViewFamily(name, summary, paper, config, number, make, undo))

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
