"""Scores of predicted masks: a few counts per image, whatever the number of its pixels; masks themselves are not kept.

Pixels without a class (void) take no part. Figures are of all pixels of all images together, but what is drawn at
random are images: so each image is known by its counts.

For temperature scaling, cross-entropies at many temperatures are taken on a regular grid of at most 4,096 pixels of
each image, and made to agree with those of all pixels at a temperature of 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surgeon.core.errors import SurgeonError
from surgeon.data.masks import VOID
from surgeon.metrics import packing
from surgeon.metrics.accumulator import COLUMNS, ImageScores, Scores
from surgeon.metrics.calibration import EQUAL_WIDTH_BINS
from surgeon.metrics.temperature_fit import GRID, TemperatureSums

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.metrics.pooling import AnyScores

MOST_PIXELS = 4096
"""Of an image, for temperature scaling."""
SAMPLED = 256
"""Pixels of an image whose predicted class is kept, by which networks are compared without labels."""
NOTHING = -1
FORMAT = 1001
"""Tells stored scores of masks from those of classes."""
SAME = ("intersection", "predicted", "cross_entropy", "confidence")


def _per_image(classes: int) -> np.dtype[Any]:
    """Counts of pixels by class; pixels, confidence and right ones by bin of confidence; sums over labelled pixels."""
    return np.dtype(
        [
            ("intersection", np.int32, (classes,)),
            ("truth", np.int32, (classes,)),
            ("predicted", np.int32, (classes,)),
            ("bins", np.float64, (3, EQUAL_WIDTH_BINS)),
            ("cross_entropy", np.float64),
            ("confidence", np.float64),
            ("sampled", np.int32, (SAMPLED,)),
            ("nan", np.bool_),
            ("seen", np.bool_),
        ]
    )


@dataclass(frozen=True, kw_only=True)
class MaskImages(ImageScores):
    """What is known of each image, as a row of counts."""

    of_masks = True

    rows: NDArray[Any]
    confusion: NDArray[np.int64]
    """Pixels of all images together, by their class (rows) and the predicted one; those with NaN are left out."""
    size: tuple[int, int]
    """Height and width at which masks are compared; of the last image, if they differ."""

    def of(self, name: str) -> NDArray[np.float64]:
        """One of the counts, for each image."""
        found: NDArray[np.float64] = self.rows[name].astype(np.float64)
        return found

    @cached_property
    def pixels(self) -> NDArray[np.float64]:
        """Those with a class, of each image."""
        found: NDArray[np.float64] = self.of("truth").sum(axis=1)
        return found

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """Which classes have pixels in these images: the others have no IoU."""
        return np.asarray(self.rows["truth"].sum(axis=0) > 0)

    @cached_property
    def union(self) -> NDArray[np.float64]:
        """By image and class: pixels that are of the class or were taken for it."""
        return self.of("truth") + self.of("predicted") - self.of("intersection")

    def only(self, places: NDArray[Any]) -> MaskImages:
        return replace(self, indices=self.indices[places], nan=self.nan[places], rows=self.rows[places])

    def answers(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Of some pixels of each image."""
        return self.rows["sampled"].ravel(), self.of("confidence")

    def errors(self) -> NDArray[np.float64]:
        """Whose mean is 1 - mean IoU."""
        from surgeon.metrics.mask_figures import iou_values

        found: NDArray[np.float64] = 1 - iou_values(self).mean(axis=1)
        return found

    def same_as(self, other: ImageScores) -> bool:
        assert isinstance(other, MaskImages)
        alike = all(np.array_equal(self.rows[name], other.rows[name]) for name in SAME)
        return alike and self.elsewhere == other.elsewhere

    def pooled(self, others: list[ImageScores]) -> MaskImages:
        parts = [self, *(other for other in others if isinstance(other, MaskImages))]
        sums = self.sums
        for part in parts[1:]:
            sums += part.sums
        return replace(
            self,
            indices=np.concatenate([part.indices for part in parts]),
            nan=np.concatenate([part.nan for part in parts]),
            rows=np.concatenate([part.rows for part in parts]),
            confusion=np.sum([part.confusion for part in parts], axis=0),
            sums=sums,
            under=tuple(parts),
        )


class MaskScores(Scores):
    """Accumulates batches of logits (N, classes, H, W) and masks (N, H, W)."""

    primary = "iou"
    compared = ("iou", "accuracy", "cross-entropy", "scaled-cross-entropy")

    def __init__(self) -> None:
        super().__init__()
        self._confusion: NDArray[np.int64] | None = None
        self._size = (0, 0)

    def update(self, logits: Tensor, labels: Tensor, indices: Any) -> None:
        """Score a batch; images that were scored before are passed over. Labels (N,) stand for images without masks."""
        import torch

        if labels.dim() == 1:
            labels = torch.full((len(logits), *logits.shape[2:]), VOID)
        super().update(logits, labels, indices)

    def absorb(self, other: Scores) -> Scores:
        merged = super().absorb(other)
        if merged is self and isinstance(other, MaskScores):
            both = [one._confusion for one in (self, other) if one._confusion is not None]
            self._confusion = np.sum(both, axis=0) if both else None
            self._size = max(self._size, other._size)
        return merged

    def images(self, fitted_on: AnyScores | None = None) -> MaskImages:
        indices = self._indices()
        if len(indices) == 0 or self.classes is None or self._confusion is None:
            raise SurgeonError("There are no images to score.", "Check the split and --limit.")
        rows = self._rows(indices)
        elsewhere = None if fitted_on is None else fitted_on.images().scaled
        unknown: dict[str, Any] = {name: np.zeros(0) for name in COLUMNS} | {"nan": rows["nan"]}
        return MaskImages(
            self.classes,
            indices,
            **unknown,
            sums=self._sums,
            elsewhere=elsewhere,
            rows=rows,
            confusion=self._confusion,
            size=self._size,
        )

    def to_bytes(self) -> bytes:
        indices = self._indices()
        header = np.array([FORMAT, self.classes or 0, *self._size])
        confusion = self._confusion if self._confusion is not None else np.zeros((0, 0), np.int64)
        return packing.pack(header, indices, self._rows(indices), self._sums.to_digits(), confusion)

    @classmethod
    def from_bytes(cls, data: bytes) -> MaskScores:
        arrays = packing.unpack(data)
        if len(arrays) != 5 or arrays[0].shape != (4,) or arrays[0][0] != FORMAT:
            raise packing.damaged()
        header, indices, rows, digits, confusion = arrays
        scores = cls()
        if header[1]:
            scores._begin(int(header[1]))
            if rows.dtype != scores._images.dtype:
                raise packing.damaged()
            scores._confusion = confusion
        scores._size = int(header[2]), int(header[3])
        scores._restore(indices, rows, digits)
        return scores

    def _begin(self, classes: int) -> None:
        self.classes = classes
        self._images = np.zeros(0, _per_image(classes))
        self._confusion = np.zeros((classes, classes), np.int64)

    def _check(self, logits: Tensor, labels: Tensor, indices: NDArray[np.int64]) -> None:
        fitting = logits.dim() == 4 and (len(logits), *logits.shape[2:]) == tuple(labels.shape)
        if not fitting or len(labels) != len(indices):
            raise SurgeonError(
                f"Logits of shape {tuple(logits.shape)} do not fit masks of shape {tuple(labels.shape)}.",
                "Logits must be images x classes x height x width, with one mask of that size per image.",
            )
        self._check_classes(logits.shape[1], labels[labels != VOID], indices)
        if self._confusion is None:
            self._begin(logits.shape[1])

    def _scored(self, logits: Tensor, labels: Tensor, places: NDArray[np.int64]) -> tuple[Any, TemperatureSums]:
        assert self.classes is not None
        rows = np.zeros(len(labels), self._images.dtype)
        self._size = int(labels.shape[1]), int(labels.shape[2])
        on_grid, pixels = np.zeros((len(labels), len(GRID))), np.zeros(len(labels), np.int64)
        for number, (of_image, mask) in enumerate(zip(logits, labels, strict=True)):
            on_grid[number], pixels[number] = self._score(rows[number : number + 1], of_image, mask)
        return rows, TemperatureSums.of_sums(places, on_grid, pixels)

    def _score(self, row: NDArray[Any], logits: Tensor, mask: Tensor) -> tuple[NDArray[np.float64], int]:
        """Fill the row of one image; its summed cross-entropies at all temperatures, and the number of its pixels."""
        assert self.classes is not None
        assert self._confusion is not None
        classes = self.classes
        # Classes first: sums over few numbers that lie side by side are slow.
        every = logits.detach().cpu().double().flatten(1)
        labels = mask.cpu().flatten().long()
        top, predicted = every.max(dim=0)
        shifted = every - top
        nan = bool(shifted.isnan().any())  # or no probabilities at all
        row["nan"], row["seen"] = nan, True
        row["sampled"] = NOTHING if nan else _sampled(predicted.numpy())
        normaliser = shifted.exp().sum(dim=0)
        row["confidence"] = 0.0 if nan else float((1 / normaliser).mean())
        known = labels != VOID
        truth = labels[known]
        row["truth"] = truth.bincount(minlength=classes).numpy()
        pixels = len(truth)
        if not pixels:
            return np.zeros(len(GRID)), 0
        if nan:  # wrong, and not at all sure
            row["cross_entropy"], row["bins"][0, 0, 0] = math.inf, pixels
            return np.full(len(GRID), math.inf), pixels
        answers = predicted[known]
        confusion = (truth * classes + answers).bincount(minlength=classes**2).reshape(classes, classes).numpy()
        self._confusion += confusion
        row["intersection"], row["predicted"] = confusion.diagonal(), confusion.sum(axis=0)
        row["bins"] = _bins((1 / normaliser[known]).numpy(), (answers == truth).numpy())
        shifted = shifted[:, known]
        own = shifted.gather(0, truth[None])[0]
        losses = normaliser[known].log() - own
        total = float(losses.sum())
        row["cross_entropy"] = total
        step = -(-pixels // MOST_PIXELS)
        few, own = shifted[:, ::step].contiguous(), own[::step]
        changes = [
            float(((few / temperature).exp_().sum(dim=0).log_() - own / temperature - losses[::step]).mean())
            for temperature in GRID.tolist()
        ]
        return np.maximum(total + np.array(changes) * pixels, 0.0), pixels


def _sampled(predicted: NDArray[Any]) -> NDArray[np.int32]:
    """The predicted class of some pixels all over the image; with fewer pixels the rest is nothing."""
    found = np.full(SAMPLED, NOTHING, np.int32)
    places = np.unique(np.linspace(0, len(predicted) - 1, SAMPLED).round().astype(np.int64))
    found[: len(places)] = predicted[places]
    return found


def _bins(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Pixels, their confidence and the right ones, by bins of equal width, closed on the right."""
    edges = np.linspace(0, 1, EQUAL_WIDTH_BINS + 1)
    places = np.searchsorted(edges[1:-1], confidence, side="left")
    return np.stack([np.bincount(places, weights, EQUAL_WIDTH_BINS) for weights in (None, confidence, correct)])


def scores_from_bytes(data: bytes) -> Scores:
    """Scores that were stored, of whichever kind."""
    header = packing.unpack(data)[0]
    of_masks = header.shape == (4,) and header[0] == FORMAT
    return MaskScores.from_bytes(data) if of_masks else Scores.from_bytes(data)
