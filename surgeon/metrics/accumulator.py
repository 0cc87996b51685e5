"""Scores of a stream of predictions, a few numbers per image, whatever the number of classes.

An image is known by its index in the data. The numbers are stored at that index, so the final
figures depend neither on the order of the images nor on how they were shared among processes, and
an image that arrives twice counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surgeon.errors import SurgeonError, count
from surgeon.metrics import temperature
from surgeon.metrics.temperature import TemperatureFit, TemperatureSums

if TYPE_CHECKING:
    from torch import Tensor

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
CONFIRMING_ROW, CHOOSING_ROW = 0, 1


class Part(StrEnum):
    """Which images to summarise: all, those used to choose with, or those held back to confirm."""

    ALL = "all"
    CHOOSING = "choosing"
    CONFIRMING = "confirming"


@dataclass(frozen=True)
class ImageScores:
    """What is known of each image of a part, in the order of their indices.

    An image whose logits contain a NaN (or admit no probabilities) is wrong, with confidence 0,
    infinite cross-entropy and predicted class -1. `scaled` is the result of temperature scaling,
    fitted on the choosing part for the confirming one, and on these images themselves otherwise.
    """

    classes: int
    indices: NDArray[np.int64]
    cross_entropy: NDArray[np.float64]
    confidence: NDArray[np.float64]
    predicted: NDArray[np.int32]
    correct: NDArray[np.bool_]
    correct_top5: NDArray[np.bool_]
    nan: NDArray[np.bool_]
    scaled: TemperatureFit

    def __len__(self) -> int:
        return len(self.indices)


class Scores:
    """Accumulates batches of logits and labels; can be pickled and merged.

    `choosing` says for every image index whether the image belongs to the choosing part. Without
    it, all images form one part.
    """

    def __init__(self, choosing: NDArray[np.bool_] | None = None) -> None:
        self.choosing = choosing
        self.classes: int | None = None
        self._images = np.zeros(0, PER_IMAGE)
        self._sums = TemperatureSums()

    def __len__(self) -> int:
        return int(self._images["seen"].sum())

    def update(self, logits: Tensor, labels: Tensor, indices: Any) -> None:
        """Score a batch; images that were scored before are passed over."""
        places = np.asarray(indices, dtype=np.int64)
        self._check(logits, labels, places)
        self._grow(int(places.max(initial=-1)) + 1)
        first = np.zeros(len(places), np.bool_)
        first[np.unique(places, return_index=True)[1]] = True
        new = first & ~self._images["seen"][places]
        if not new.any():
            return
        rows, at_temperatures = _score(logits[new.tolist()], labels[new.tolist()])
        self._images[places[new]] = rows
        self._sums.add(places[new], self._parts(places[new]), at_temperatures)

    def merge(self, other: Scores) -> Scores:
        """The scores of both, as if one process had seen all images.

        Of an image that both have seen, the copy in the last batch is dropped: that is where
        samplers put the repeated images that give all processes equally many.
        """
        self._check_mergeable(other)
        merged = Scores(self.choosing)
        merged.classes = self.classes or other.classes
        merged._grow(max(len(self._images), len(other._images)))
        mine, theirs = (merged._seen_by(scores) for scores in (self, other))
        both = np.flatnonzero(mine & theirs)
        from_other = both[np.isin(both, other._sums.last_indices)]
        from_self = np.setdiff1d(both, from_other)
        if not np.isin(from_self, self._sums.last_indices).all():
            raise SurgeonError(
                f"{count(len(both), 'image')} were scored by two processes, e.g. the image with index {both[0]}.",
                "Give every process images of its own; only last batches may repeat some.",
            )
        mine[from_self] = theirs[from_other] = False
        for scores, kept in ((self, mine), (other, theirs)):
            merged._images[kept] = scores._images[np.flatnonzero(kept)]
        merged._sums = self._sums.take_back(from_self) + other._sums.take_back(from_other)
        return merged

    def images(self, part: Part = Part.ALL) -> ImageScores:
        """The numbers of every image of a part, and its cross-entropy after temperature scaling."""
        indices = np.flatnonzero(self._images["seen"])
        if part is not Part.ALL:
            indices = indices[self._parts(indices) == (CHOOSING_ROW if part is Part.CHOOSING else CONFIRMING_ROW)]
        if len(indices) == 0 or self.classes is None:
            raise SurgeonError("There are no images to score.", "Check the split and --limit.")
        rows = self._images[indices]
        columns = {name: rows[name] for name in PER_IMAGE.names or () if name != "seen"}
        return ImageScores(self.classes, indices, **columns, scaled=self._scaled(part))

    def _scaled(self, part: Part) -> TemperatureFit:
        if part is Part.ALL:
            return self._sums.fit(CONFIRMING_ROW, CHOOSING_ROW)
        fitted = self._sums.fit(CHOOSING_ROW)
        return fitted if part is Part.CHOOSING else self._sums.apply(fitted.temperature, CONFIRMING_ROW)

    def _parts(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of the temperature sums that each image belongs to."""
        if self.choosing is None:
            return np.full(len(indices), CONFIRMING_ROW)
        return np.where(self.choosing[indices], CHOOSING_ROW, CONFIRMING_ROW)

    def _grow(self, length: int) -> None:
        if length > len(self._images):
            larger = np.zeros(max(length, 2 * len(self._images)), PER_IMAGE)
            larger[: len(self._images)] = self._images
            self._images = larger

    def _seen_by(self, scores: Scores) -> NDArray[np.bool_]:
        seen = np.zeros(len(self._images), np.bool_)
        seen[: len(scores._images)] = scores._images["seen"]
        return seen

    def _check(self, logits: Tensor, labels: Tensor, indices: NDArray[np.int64]) -> None:
        if logits.dim() != 2 or not len(logits) == len(labels) == len(indices):
            raise SurgeonError(
                f"Logits of shape {tuple(logits.shape)} do not fit {len(labels)} labels and {len(indices)} indices.",
                "Logits must be images x classes, with one label and one index per image.",
            )
        classes = logits.shape[1]
        if self.classes not in (None, classes):
            raise SurgeonError(f"Logits of {classes} classes came after logits of {self.classes} classes.")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise SurgeonError(
                f"Labels from {int(labels.min())} to {int(labels.max())} do not fit a network of {classes} classes.",
                "Check that the data and the network have the same classes.",
            )
        if len(indices) and (indices.min() < 0 or (self.choosing is not None and indices.max() >= len(self.choosing))):
            raise SurgeonError(
                f"Image indices from {indices.min()} to {indices.max()} are outside of the data.",
                "Indices count the images of the data from 0.",
            )
        self.classes = classes

    def _check_mergeable(self, other: Scores) -> None:
        if self.choosing is None or other.choosing is None:
            same_parts = self.choosing is other.choosing
        else:
            same_parts = np.array_equal(self.choosing, other.choosing)
        if not same_parts or len({self.classes, other.classes} - {None}) > 1:
            raise SurgeonError(
                "Scores of different classes or of different choosing parts cannot be merged.",
                "Score all images with the same network and the same choosing part.",
            )


def _score(logits: Tensor, labels: Tensor) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The stored numbers of each image, and its cross-entropies at all temperatures of the grid."""
    import torch

    shifted, own = temperature.centred(logits, labels)
    labels = labels.to("cpu")
    nan = shifted.isnan().any(dim=1)
    predicted = shifted.argmax(dim=1)
    earlier = torch.arange(shifted.shape[1]) < labels[:, None]
    ahead = (shifted > own[:, None]) | ((shifted == own[:, None]) & earlier)  # ties go to the lower class
    rows = np.zeros(len(labels), PER_IMAGE)
    rows["cross_entropy"] = temperature.cross_entropy_at(shifted, own, 1.0).masked_fill(nan, torch.inf)
    rows["confidence"] = (1 / shifted.exp().sum(dim=1)).masked_fill(nan, 0.0)
    rows["predicted"] = predicted.masked_fill(nan, -1)
    rows["correct"] = (predicted == labels) & ~nan
    rows["correct_top5"] = (ahead.sum(dim=1) < 5) & ~nan
    rows["nan"] = nan
    rows["seen"] = True
    return rows, temperature.cross_entropy_on_grid(shifted, own)
