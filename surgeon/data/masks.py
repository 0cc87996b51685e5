"""Masks: the class of every pixel of an image, from another column of a table or a folder beside that of the images."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.core.reading import parse_json, read_bounded

if TYPE_CHECKING:
    from surgeon.data.images import EncodedImages, ImageSet

Mask = npt.NDArray[np.int64]

VOID = -100
"""Of pixels that no class is known of, in every mask that was read; torch's losses ignore it too."""
USUAL_VOID = 255
GREY_MODES = ("1", "L", "P", "I", "I;16", "I;16B")
CLASSES_FILE, LABELS_FILE = "classes.txt", "id2label.json"
MOST_NAMES_BYTES = 1 << 20

KNOWN_SETS = {
    "camvid": (
        "sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "cyclist",
    ),
}  # fmt: skip
"""Data sets whose usual copies do not name their classes, by the name of their folder."""


class BadMaskError(SurgeonError):
    """A mask that cannot be used.

    Args:
        identity: Of its image.
        reason: What is wrong with the mask.
        hint: What to do.
    """

    def __init__(self, identity: str, reason: str, hint: str = "") -> None:
        self.identity = identity
        super().__init__(
            f"The mask of the image {identity} {reason}.", hint or "Repair it, or pass --skip-bad to skip it."
        )


@dataclass(frozen=True, eq=False)
class Masks:
    """The masks of a set of images, each at the position of its image.

    Args:
        encoded: Where their files lie.
        classes: How many there are; None until the data or a network have told.
        void: Values of pixels without a class.
    """

    encoded: EncodedImages = field(repr=False)
    classes: int | None = None
    void: frozenset[int] = frozenset({USUAL_VOID})

    def raw(self, position: int, identity: str) -> Mask:
        """The values of a mask as they are stored."""
        try:
            image = Image.open(BytesIO(self.encoded.read(position)))
            image.load()
        except Exception as error:  # damaged files make the decoders raise nearly anything
            reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
            raise BadMaskError(identity, f"cannot be read: {reason}") from error
        values = np.asarray(image)
        if image.mode == "RGB" and (values == values[..., :1]).all():
            values = values[..., 0]
        elif image.mode not in GREY_MODES:
            raise BadMaskError(
                identity,
                f"has the Pillow mode {image.mode}, not one number per pixel",
                "Masks hold class numbers, as grey or palette PNG files.",
            )
        return values.astype(np.int64)

    def read(self, position: int, identity: str, size: tuple[int, int]) -> Mask:
        """The class of every pixel, or VOID, of an image of a size (width, height)."""
        values = self.raw(position, identity)
        height, width = values.shape
        if (width, height) != size:
            raise BadMaskError(identity, f"is {width}x{height}, and the image {size[0]}x{size[1]}")
        found = np.unique(values)
        void = np.isin(found, list(self.void))
        wrong = found[~void & ((found >= self.classes) if self.classes is not None else np.zeros(len(found), bool))]
        if len(wrong):
            assert self.classes is not None
            raise BadMaskError(
                identity,
                f"has the value {wrong[0]}, and there are {self.classes:,} classes, numbered from 0; void is "
                f"{listing(map(str, sorted(self.void)))}",
                f"--void {wrong[0]} leaves such pixels out.",
            )
        return np.where(np.isin(values, found[void]), VOID, values) if void.any() else values

    def with_classes(self, classes: int) -> Masks:
        """The same for so many classes; the number after the last of them is void too."""
        void = self.void if classes <= USUAL_VOID else self.void - {USUAL_VOID}
        return replace(self, classes=classes, void=void | {classes})


def class_names_beside(folder: Path | None, name: str) -> tuple[str, ...] | None:
    """The names of the classes, if a file beside the data lists them, or the data set is known by its name.

    Args:
        folder: Where the data lie; None for data of the hub.
        name: Of the data set.
    """
    if folder is not None and (path := folder / CLASSES_FILE).is_file():
        text = read_bounded(path, "list of classes", MOST_NAMES_BYTES).decode("utf-8", "replace")
        names = tuple(line.strip() for line in text.splitlines() if line.strip())
        return _checked(names, path)
    if folder is not None and (path := folder / LABELS_FILE).is_file():
        return _checked(_by_number(path), path)
    return KNOWN_SETS.get(name.lower())


def with_names_beside(images: ImageSet, folder: Path) -> ImageSet:
    """Images whose masks are of classes with names, if these are known."""
    if images.masks is None or (names := class_names_beside(folder, images.name)) is None:
        return images
    return images.with_classes(names, known=True)


def _by_number(path: Path) -> tuple[str, ...]:
    try:
        content = parse_json(read_bounded(path, "list of classes", MOST_NAMES_BYTES))
        numbered: dict[int, Any] = {int(number): label for number, label in content.items()}
    except (ValueError, AttributeError, json.JSONDecodeError):
        raise SurgeonError(f"{path} does not map class numbers to names.") from None
    names = [numbered.get(number) for number in range(len(numbered))]
    if not all(isinstance(label, str) for label in names):
        raise SurgeonError(f"{path} does not name every class from 0 to {len(numbered) - 1}.")
    return tuple(map(str, names))


def _checked(names: Sequence[str], path: Path) -> tuple[str, ...]:
    if len(names) < 2:
        raise SurgeonError(f"{path} names {count(len(names), 'class')}; there have to be two or more.")
    return tuple(names)


def values_in(masks: Masks, positions: Iterable[int], identity: str) -> set[int]:
    """All values that occur in some masks, those of void left out; unreadable ones are the business of others."""
    found: set[int] = set()
    for position in positions:
        try:
            found |= set(np.unique(masks.raw(position, identity)).tolist())
        except BadMaskError:
            continue
    return found - masks.void
