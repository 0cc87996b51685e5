"""What is to be predicted: files, all images or clips below folders, pictures in memory; in the order given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from surgeon.core.errors import SurgeonError
from surgeon.core.media import Medium
from surgeon.data.clips import SoundSet
from surgeon.data.folders import hint_on_names, sample_files
from surgeon.data.images import ImageFiles, ImageSet

NAME = "predict"


def found_files(paths: Iterable[str], *, skip_missing: bool, medium: Medium = Medium.IMAGE) -> list[str]:
    """Every file that is meant, folders replaced by the images, or clips, below them.

    Args:
        paths: Of files and folders.
        skip_missing: Keep files that are not there, to be told of as unreadable.
        medium: What the network takes.
    """
    files: list[str] = []
    for path in paths:
        place = Path(path).expanduser()
        if place.is_dir():
            below = [os.path.join(path, name) for name in sample_files(place, place, (medium,))]
            if not below:
                raise SurgeonError(f"The folder {path!r} holds no {medium.samples}.", hint_on_names(medium))
            files += below
        elif place.exists() or skip_missing:
            files.append(path)
        else:
            raise SurgeonError(f"There is no {medium.noun} file or folder {path!r}.", "Pass --skip-bad to skip it.")
    if not files:
        raise SurgeonError(f"There are no {medium.samples} to predict.", "Give files or folders.")
    return files


class GivenImages:
    """Image files by their paths, and pictures in memory, which are encoded on demand without loss."""

    def __init__(self, given: Sequence[str | Image.Image]) -> None:
        self.given = given
        self._files = ImageFiles(Path(), [os.path.expanduser(one) if isinstance(one, str) else "" for one in given])

    def read(self, position: int) -> bytes:
        one = self.given[position]
        if isinstance(one, str):
            return self._files.read(position)
        stream = BytesIO()
        (one if one.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16") else one.convert("RGB")).save(stream, "PNG")
        return stream.getvalue()

    def identity(self, position: int) -> str:
        one = self.given[position]
        return one if isinstance(one, str) else f"number {position}"


class _KnownByPath(ImageSet):
    """Samples without labels, each known by its path alone."""

    def identity(self, index: int) -> str:
        return self.encoded.identity(int(self.positions[index]))


class _PredictedClips(_KnownByPath, SoundSet):
    pass


_PREDICTED: dict[Medium, type[ImageSet]] = {Medium.IMAGE: _KnownByPath, Medium.SOUND: _PredictedClips}


def as_image_set(given: Sequence[str | Image.Image], medium: Medium = Medium.IMAGE) -> ImageSet:
    """The images, or clips, as the loaders take them."""
    nothing = np.zeros(len(given), dtype=np.int64)
    return _PREDICTED[medium].over(GivenImages(given), nothing, ["0"], name=NAME, split="all", names_known=False)


def from_python(images: Any, medium: Medium = Medium.IMAGE) -> list[str | Image.Image]:
    """What `surgeon.predict` was given, as paths and pictures."""
    several = images if isinstance(images, list | tuple) else [images]
    given: list[str | Image.Image] = []
    for one in several:
        if isinstance(one, str | Path):
            given += found_files([str(one)], skip_missing=False, medium=medium)
        elif medium is not Medium.IMAGE:
            raise SurgeonError(f"The network takes {medium.samples}: give their paths, not a {type(one).__name__}.")
        elif isinstance(one, Image.Image):
            given.append(one)
        else:
            raise SurgeonError(
                f"Images to predict are paths and PIL images, and this is of type {type(one).__name__}.",
                "For tensors, call the network itself: model(images).softmax(1).",
            )
    if not given:
        what = "paths or PIL images" if medium is Medium.IMAGE else "paths"
        raise SurgeonError(f"There are no {medium.samples} to predict.", f"Give {what}.")
    return given
