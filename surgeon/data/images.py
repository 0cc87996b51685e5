"""A labelled set of images whose labels are known at once and whose images are decoded only when asked for."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from surgeon.core.errors import SurgeonError, listing
from surgeon.core.media import Medium
from surgeon.data.masks import Mask, Masks
from surgeon.data.stratified import Indices

if TYPE_CHECKING:
    from surgeon.models.origin import Preprocessing

FINGERPRINT_SAMPLE = 64
MOST_IMAGE_BYTES = 1 << 29
TOO_LARGE = f"it has more than {MOST_IMAGE_BYTES:,} bytes"


class UnreadableImageError(SurgeonError):
    """One image, or one clip, that cannot be read or decoded."""

    def __init__(self, identity: str, reason: str, medium: Medium = Medium.IMAGE) -> None:
        super().__init__(
            f"The {medium.noun} {identity} cannot be read: {reason}.",
            "Repair or remove it, or pass --skip-bad to skip it.",
        )
        self.identity = identity


class EncodedImages(Protocol):
    """Where the encoded bytes of images lie."""

    def read(self, position: int) -> bytes:
        """The file contents of one image."""

    def identity(self, position: int) -> str:
        """A short name of one image for messages."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labels of all images, and the way to each of them.

    `names_known` tells class names from bare numbers: a set with integer labels and nothing else
    has the names "0", "1", ... up to its largest label.
    """

    name: str
    split: str
    labels: Indices
    class_names: tuple[str, ...]
    encoded: EncodedImages = field(repr=False)
    positions: Indices = field(repr=False)
    names_known: bool = True
    outputs: tuple[int, ...] | None = None
    """The outputs of a network that the classes are, if it has others too: the rest of its predictions is left out."""
    facts: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict, repr=False)
    """What a table says of the image at each position besides its label."""
    masks: Masks | None = None
    """The class of every pixel, where images have masks; all of their labels are 0 then."""

    medium: ClassVar[Medium] = Medium.IMAGE
    """What `image` decodes: sets of another kind say so."""

    @classmethod
    def over(
        cls,
        encoded: EncodedImages,
        labels: npt.ArrayLike,
        class_names: Sequence[str],
        *,
        name: str,
        split: str,
        names_known: bool = True,
    ) -> ImageSet:
        """The set of all images of a source; an empty one is an error."""
        numbers = np.asarray(labels, dtype=np.int64)
        if len(numbers) == 0:
            raise SurgeonError(f"The split {split!r} of {name!r} holds no {cls.medium.samples}.")
        return cls(name, split, numbers, tuple(class_names), encoded, np.arange(len(numbers)), names_known)

    def __len__(self) -> int:
        return len(self.labels)

    def identity(self, index: int) -> str:
        """A short name of an image for messages."""
        return f"{self.encoded.identity(int(self.positions[index]))} of {self.name}"

    def image(self, index: int) -> Image.Image:
        """Read and decode one image."""
        return self.decoded(index, self.content(index))

    def content(self, index: int) -> bytes:
        """An image as it is stored."""
        try:
            return self.encoded.read(int(self.positions[index]))
        except Exception as error:  # archives and hosts have errors of their own
            raise self._unreadable(index, error) from error

    def decoded(self, index: int, content: bytes) -> Image.Image:
        """An image of what is stored of it."""
        try:
            return self._opened(content)
        # Damaged files make the decoders raise nearly anything: OSError, SyntaxError, struct.error, EOFError, ...
        except Exception as error:
            raise self._unreadable(index, error) from error

    def _unreadable(self, index: int, error: Exception) -> UnreadableImageError:
        return UnreadableImageError(self.identity(index), unreadable_reason(error), self.medium)

    @staticmethod
    def _opened(content: bytes) -> Image.Image:
        image = Image.open(BytesIO(content))
        image.load()
        # The orientation in the EXIF data is not applied: the networks were trained without it.
        return _in_eight_bits(image)

    def remarks(self, preprocessing: Preprocessing) -> tuple[str, ...]:  # noqa: ARG002
        """What a user should know of how samples are brought into the form that a network takes."""
        return ()

    def mask(self, index: int, size: tuple[int, int]) -> Mask:
        """The class of every pixel of an image of a size (width, height)."""
        assert self.masks is not None
        return self.masks.read(int(self.positions[index]), self.identity(index), size)

    def with_classes(self, names: Sequence[str], *, known: bool) -> ImageSet:
        """Images with masks, of as many classes as have names."""
        assert self.masks is not None
        masks = self.masks.with_classes(len(names))
        return replace(self, class_names=tuple(names), names_known=known, masks=masks)

    @property
    def about_masks(self) -> str:
        """Of which classes masks are, and what is void, in words; nothing for images without masks."""
        if self.masks is None:
            return ""
        named = "" if self.names_known else ", which no file names"
        void = listing(map(str, sorted(self.masks.void)))
        return f"{len(self.class_names):,} classes for each pixel{named}; void is {void}"

    def without_labels(self) -> ImageSet:
        """The same images, all of class 0."""
        return replace(self, labels=np.zeros_like(self.labels), class_names=("0",), names_known=False, masks=None)

    def subset(self, indices: npt.ArrayLike) -> ImageSet:
        """The images at some indices, in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        return replace(self, labels=self.labels[chosen], positions=self.positions[chosen])

    @cached_property
    def fingerprint(self) -> str:
        """Tells this set from others by its labels and the bytes of a few images."""
        digest = hashlib.sha256(f"{self.name}\0{self.split}\0{len(self)}\0".encode())
        digest.update(np.ascontiguousarray(self.labels, dtype="<i8").tobytes())
        for index in np.unique(np.linspace(0, len(self) - 1, min(FINGERPRINT_SAMPLE, len(self))).round().astype(int)):
            digest.update(hashlib.sha256(self.bytes_or_nothing(int(index))).digest())
            if self.masks is not None:
                digest.update(hashlib.sha256(self._bytes_or_nothing(self.masks.encoded, int(index))).digest())
        if self.masks is not None:
            digest.update(repr((self.masks.classes, sorted(self.masks.void))).encode())
        return digest.hexdigest()

    def bytes_or_nothing(self, index: int) -> bytes:
        """An image as it is stored; nothing if it cannot be read."""
        return self._bytes_or_nothing(self.encoded, index)

    def _bytes_or_nothing(self, encoded: EncodedImages, index: int) -> bytes:
        try:
            return encoded.read(int(self.positions[index]))
        except (OSError, ValueError):  # an unreadable image is the business of whoever evaluates it
            return b""


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """Pillow cuts off what is brighter than 255 when it converts 16-bit greys: they are scaled first."""
    # Older releases of Pillow open 16-bit PNG files with 32 bits.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        return Image.fromarray((np.asarray(image) / 257).round().astype(np.uint8))
    return image


def unreadable_reason(error: Exception) -> str:
    """Why a decoder failed, in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if type(error).__name__ == "UnidentifiedImageError":
        return "it is not an image that Pillow knows"
    return (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__


class ImageFiles:
    """Images that are files below one folder."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self.root = root
        self.paths = paths

    def read(self, position: int) -> bytes:
        return read_file(self.root / self.paths[position])

    def identity(self, position: int) -> str:
        return self.paths[position]


class PixelArrays:
    """Grey images (N, H, W) or colour images (N, H, W, 3) in memory, encoded on demand without loss."""

    def __init__(self, pixels: npt.NDArray[np.uint8]) -> None:
        self.pixels = pixels

    def read(self, position: int) -> bytes:
        stream = BytesIO()
        Image.fromarray(self.pixels[position]).save(stream, "PNG")
        return stream.getvalue()

    def identity(self, position: int) -> str:
        return f"number {position}"


def read_file(path: Path) -> bytes:
    refuse_special_file(path)
    return path.read_bytes()


def refuse_special_file(path: Path, of_any_size: bool = False) -> None:
    """Opening a pipe waits for a writer, and a device never ends."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not a regular file")
    if found.st_size > MOST_IMAGE_BYTES and not of_any_size:
        raise ValueError(TOO_LARGE)
