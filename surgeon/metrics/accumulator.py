"""Scores of a stream of predictions, a few numbers per image, whatever the number of classes.

An image is known by its index in the data. The numbers are stored at that index, so the final
figures depend neither on the order of the images nor on how they were shared among processes, and
an image that arrives twice counts once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surgeon.core.errors import SurgeonError, count
from surgeon.metrics import packing, temperature_fit
from surgeon.metrics.groups import group_of
from surgeon.metrics.temperature_fit import TemperatureFit, TemperatureSums

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.metrics.pooling import AnyScores

PER_IMAGE = np.dtype(
    [
        ("cross_entropy", np.float64),
        ("confidence", np.float64),
        ("predicted", np.int32),
        ("correct", np.bool_),
        ("correct_top5", np.bool_),
        ("nan", np.bool_),
        ("seen", np.bool_),
    ]
)
SAME = ("cross_entropy", "confidence", "correct", "predicted")
COLUMNS = tuple(name for name in PER_IMAGE.names or () if name != "seen")
# The first number of stored scores; another one would be needed if the others changed their meaning.
FORMAT = 1


@dataclass(frozen=True)
class ImageScores:
    """What is known of each image, in the order of their indices.

    An image whose logits contain a NaN (or admit no probabilities) is wrong, with confidence 0,
    infinite cross-entropy and predicted class -1. `sums` are for temperature scaling; `elsewhere` is
    the fit whose temperature is used, None if these images themselves are to be fitted. The last
    `imagined` images are none: intervals reckon with them. `under` are the parts, if these are the same images under
    several conditions one after another; their indices repeat.
    """

    classes: int
    indices: NDArray[np.int64]
    cross_entropy: NDArray[np.float64]
    confidence: NDArray[np.float64]
    predicted: NDArray[np.int32]
    correct: NDArray[np.bool_]
    correct_top5: NDArray[np.bool_]
    nan: NDArray[np.bool_]
    sums: TemperatureSums
    elsewhere: TemperatureFit | None
    imagined: int = 0
    under: tuple[ImageScores, ...] = ()

    of_masks = False
    """Whether predictions are masks, of which metrics are computed in another way."""

    def __len__(self) -> int:
        return len(self.indices)

    @cached_property
    def scaled(self) -> TemperatureFit:
        """The result of temperature scaling."""
        return self.sums.fit() if self.elsewhere is None else self.sums.apply(self.elsewhere.temperature)

    def without(self, group: int) -> ImageScores:
        """All images but those of one group."""
        return replace(self.only(group_of(self.indices) != group), sums=self.sums.without(group))

    def only(self, places: NDArray[Any]) -> ImageScores:
        """Some of the images by what is known of each; the sums for temperature scaling remain those of all."""
        return replace(self, **{name: getattr(self, name)[places] for name in ("indices", *COLUMNS)})

    def answers(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The predicted classes, and how sure the network is, without knowing what is right."""
        return self.predicted, self.confidence

    def errors(self) -> NDArray[np.float64]:
        """For each image a number whose mean is the error: of classification, whether it is wrong."""
        return (~self.correct).astype(np.float64)

    def same_as(self, other: ImageScores) -> bool:
        """Whether two networks are the same as far as these images show, to the last digit."""
        alike = all(np.array_equal(getattr(self, name), getattr(other, name)) for name in SAME)
        return alike and self.elsewhere == other.elsewhere  # with another temperature it is another network

    def pooled(self, others: list[ImageScores]) -> ImageScores:
        """With the same images under other conditions, as if all were one set of predictions."""
        parts = [self, *others]
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", *COLUMNS)
        }
        sums = reduce(lambda one, other: one + other, (part.sums for part in parts))
        return replace(self, **joined, sums=sums, imagined=sum(part.imagined for part in parts), under=tuple(parts))


class Scores:
    """Accumulates batches of logits and labels; can be pickled, stored as bytes, and merged."""

    primary = "accuracy"
    """The metric that networks are compared by unless somebody says otherwise."""
    compared: tuple[str, ...] = ("accuracy", "cross-entropy", "scaled-cross-entropy")
    """Those that are always told of."""

    def __init__(self) -> None:
        self.classes: int | None = None
        self._images = np.zeros(0, PER_IMAGE)
        self._first = 0
        """The index of the first row: a block from the middle of the data has no rows for all that comes before."""
        self._sums = TemperatureSums()

    def __len__(self) -> int:
        return int(self._images["seen"].sum())

    def update(self, logits: Tensor, labels: Tensor, indices: Any) -> None:
        """Score a batch; images that were scored before are passed over."""
        places = np.asarray(indices, dtype=np.int64)
        self._check(logits, labels, places)
        self._grow(places)
        first = np.zeros(len(places), np.bool_)
        first[np.unique(places, return_index=True)[1]] = True
        new = first & ~self._images["seen"][places - self._first]
        if not new.any():
            return
        rows, sums = self._scored(logits[new.tolist()], labels[new.tolist()], places[new])
        self._images[places[new] - self._first] = rows
        self._sums += sums

    def _scored(self, logits: Tensor, labels: Tensor, places: NDArray[np.int64]) -> tuple[Any, TemperatureSums]:
        """What is stored of images at some places, and their sums for temperature scaling."""
        rows, at_temperatures = _score(logits, labels)
        return rows, TemperatureSums.of(places, at_temperatures)

    def merge(self, other: Scores) -> Scores:
        """The scores of both, as if one process had seen all images; they must have no image in common."""
        return type(self)().absorb(self).absorb(other)

    def absorb(self, other: Scores) -> Scores:
        """The same, but this object takes in the other's images, and costs no more than they do.

        Returns:
            What has the scores of both: this object, unless it had seen nothing and was of no kind yet.
        """
        if type(other) is not type(self) and not len(self):
            return type(other)().absorb(other)
        self._check_mergeable(other)
        indices = other._indices()
        if not len(indices):
            return self
        if not len(self._images):
            self._images = np.zeros(0, other._images.dtype)
        self.classes = self.classes or other.classes
        self._grow(indices)
        self._images[indices - self._first] = other._rows(indices)
        self._sums += other._sums
        return self

    def images(self, fitted_on: AnyScores | None = None) -> ImageScores:
        """The numbers of every image; the temperature is fitted on other scores if they are given."""
        indices = self._indices()
        if len(indices) == 0 or self.classes is None:
            raise SurgeonError("There are no images to score.", "Check the split and --limit.")
        rows = self._rows(indices)
        columns: dict[str, Any] = {name: rows[name] for name in COLUMNS}
        elsewhere = None if fitted_on is None else fitted_on.images().scaled
        return ImageScores(self.classes, indices, **columns, sums=self._sums, elsewhere=elsewhere)

    def to_bytes(self) -> bytes:
        """Everything, exactly and without pickle; the same images give the same bytes."""
        indices = self._indices()
        header = np.array([FORMAT, self.classes or 0])
        return packing.pack(header, indices, self._rows(indices), self._sums.to_digits())

    @classmethod
    def from_bytes(cls, data: bytes) -> Scores:
        """The scores that `to_bytes` stored."""
        arrays = packing.unpack(data)
        if len(arrays) != 4 or arrays[0].shape != (2,) or arrays[0][0] != FORMAT or arrays[2].dtype != PER_IMAGE:
            raise packing.damaged()
        header, indices, rows, digits = arrays
        scores = cls()
        scores.classes = int(header[1]) or None
        scores._restore(indices, rows, digits)
        return scores

    def _restore(self, indices: NDArray[np.int64], rows: NDArray[Any], digits: NDArray[np.uint8]) -> None:
        """Take in what was stored of some images."""
        self._grow(indices)
        self._images[indices - self._first] = rows
        self._sums = TemperatureSums.from_digits(digits, np.unique(group_of(indices)))

    def _indices(self) -> NDArray[np.int64]:
        return np.flatnonzero(self._images["seen"]) + self._first

    def _rows(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        rows: NDArray[Any] = self._images[indices - self._first]
        return rows

    def _grow(self, indices: NDArray[np.int64]) -> None:
        """Make room for images; whenever there is not enough, for twice as many as before."""
        if not len(indices):
            return
        low, high, rows = int(indices.min()), int(indices.max()) + 1, len(self._images)
        first, end = (self._first, self._first + rows) if rows else (low, low)
        if first <= low and high <= end:
            return
        new_first = first if low >= first else max(min(low, first - rows), 0)
        larger = np.zeros(max(high, end if high <= end else first + 2 * rows) - new_first, self._images.dtype)
        larger[first - new_first : end - new_first] = self._images
        self._images, self._first = larger, new_first

    def _check(self, logits: Tensor, labels: Tensor, indices: NDArray[np.int64]) -> None:
        if logits.dim() != 2 or labels.dim() != 1 or not len(logits) == len(labels) == len(indices):
            raise SurgeonError(
                f"Logits of shape {tuple(logits.shape)} do not fit {len(labels)} labels and {len(indices)} indices.",
                "Logits must be images x classes, with one label and one index per image.",
            )
        self._check_classes(logits.shape[1], labels, indices)

    def _check_classes(self, classes: int, labels: Tensor, indices: NDArray[np.int64]) -> None:
        if self.classes not in (None, classes):
            raise SurgeonError(f"Logits of {classes} classes came after logits of {self.classes} classes.")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise SurgeonError(
                f"Labels from {int(labels.min())} to {int(labels.max())} do not fit a network of {classes} classes.",
                "Check that the data and the network have the same classes.",
            )
        if len(indices) and indices.min() < 0:
            raise SurgeonError(
                f"Image indices from {indices.min()} to {indices.max()} are outside of the data.",
                "Indices count the images of the data from 0.",
            )
        self.classes = classes

    def _check_mergeable(self, other: Scores) -> None:
        if len({self.classes, other.classes} - {None}) > 1:
            raise SurgeonError(
                f"Scores of {self.classes} and of {other.classes} classes cannot be merged.",
                "Score all images with the same network.",
            )
        theirs = other._indices()
        within = theirs[(theirs >= self._first) & (theirs < self._first + len(self._images))]
        both = within[self._images["seen"][within - self._first]]
        if len(both):
            raise SurgeonError(
                f"{count(len(both), 'image')} scored twice, e.g. the image with index {both[0]}.",
                "Give every process images of its own.",
            )


def _score(logits: Tensor, labels: Tensor) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The stored numbers of each image, and its cross-entropies at all temperatures of the grid."""
    import torch

    shifted, own = temperature_fit.centred(logits, labels)
    labels = labels.to("cpu")
    nan = shifted.isnan().any(dim=1)
    predicted = shifted.argmax(dim=1)
    earlier = torch.arange(shifted.shape[1]) < labels[:, None]
    ahead = (shifted > own[:, None]) | ((shifted == own[:, None]) & earlier)  # ties go to the lower class
    rows = np.zeros(len(labels), PER_IMAGE)
    rows["cross_entropy"] = temperature_fit.cross_entropy_at(shifted, own, 1.0).masked_fill(nan, torch.inf)
    rows["confidence"] = (1 / shifted.exp().sum(dim=1)).masked_fill(nan, 0.0)
    rows["predicted"] = predicted.masked_fill(nan, -1)
    rows["correct"] = (predicted == labels) & ~nan
    rows["correct_top5"] = (ahead.sum(dim=1) < 5) & ~nan
    rows["nan"] = nan
    rows["seen"] = True
    return rows, temperature_fit.cross_entropy_on_grid(shifted, own)
