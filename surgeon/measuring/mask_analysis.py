"""What lies behind the figures of predicted masks: classes, confusions, calibration, and some of the masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from surgeon.data.images import ImageSet
from surgeon.data.masks import VOID
from surgeon.measuring.conditions import denormalise
from surgeon.measuring.preparation import PreparedNetwork
from surgeon.metrics import ImageScores
from surgeon.metrics.calibration import EQUAL_WIDTH_BINS
from surgeon.metrics.interval import interval_of_values
from surgeon.metrics.mask_figures import iou_by_class, iou_values, of_masks
from surgeon.results import ConfidenceBin, Confusion, MaskBreakdown, MaskClass

MOST_CONFUSIONS = 20
EXAMPLES = 6


def break_down_masks(scores: ImageScores, image_set: ImageSet) -> MaskBreakdown:
    """The scores of images with masks."""
    images = of_masks(scores)
    assert image_set.masks is not None
    names = image_set.class_names
    ious, values = iou_by_class(images), iou_values(images)
    truth, right, predicted = (images.of(name).sum(axis=0) for name in ("truth", "intersection", "predicted"))
    shown = np.flatnonzero(images.present).tolist()
    classes = []
    for column, number in enumerate(shown):
        low, high = interval_of_values(float(ious[number]), values[:, column], (0.0, 1.0))
        classes.append(
            MaskClass(
                name=names[number],
                iou=float(ious[number]),
                iou_low=low,
                iou_high=high,
                pixels=int(truth[number]),
                found=float(right[number] / truth[number]),
                predicted=int(predicted[number]),
                images=int((images.rows["truth"][:, number] > 0).sum()),
            )
        )
    height, width = images.size
    return MaskBreakdown(
        classes=tuple(classes),
        absent=tuple(name for number, name in enumerate(names) if number not in shown),
        void=tuple(sorted(image_set.masks.void)),
        void_share=1 - float(images.pixels.sum()) / (len(images) * height * width),
        size=(height, width),
        confusions=_confusions(images.confusion, truth, names),
        bins=_bins(images.of("bins").sum(axis=0)),
    )


def _confusions(
    confusion: NDArray[np.int64], truth: NDArray[np.float64], names: tuple[str, ...]
) -> tuple[Confusion, ...]:
    wrong = confusion * (1 - np.eye(len(confusion), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]
    pairs = [(int(place) // len(wrong), int(place) % len(wrong)) for place in order]
    return tuple(
        Confusion(
            actual=names[actual],
            predicted=names[taken],
            images=int(wrong[actual, taken]),
            share=float(wrong[actual, taken] / truth[actual]),
        )
        for actual, taken in pairs
        if wrong[actual, taken]
    )


def _bins(sums: NDArray[np.float64]) -> tuple[ConfidenceBin, ...]:
    """Those that hold pixels; neighbouring pixels are too much alike for an interval."""
    edges = np.linspace(0, 1, EQUAL_WIDTH_BINS + 1)
    return tuple(
        ConfidenceBin(
            low=float(edges[number]),
            high=float(edges[number + 1]),
            images=int(pixels),
            confidence=float(confidence / pixels),
            accuracy=float(right / pixels),
            accuracy_low=float(right / pixels),
            accuracy_high=float(right / pixels),
        )
        for number, (pixels, confidence, right) in enumerate(sums.T)
        if pixels
    )


@dataclass(frozen=True)
class ExampleMask:
    """One image as the network saw it, with its mask and the predicted one."""

    name: str
    pixels: NDArray[np.uint8]
    truth: NDArray[np.int64]
    predicted: NDArray[np.int64]

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Pixels with a class that was not found."""
        found: NDArray[np.bool_] = (self.truth != self.predicted) & (self.truth != VOID)
        return found


def example_pictures(network: PreparedNetwork) -> list[ExampleMask]:
    """A few images from all over the set."""
    images = network.image_set
    places = np.unique(np.linspace(0, len(images) - 1, EXAMPLES).round().astype(np.int64))
    found = []
    for batch in network.with_one_view().batches(images.subset(places)):
        if not len(batch.indices):
            continue
        with network.inference.applied_to(network.model):
            (logits,) = network.inference.logits(lambda some: [network.model(some)], batch.images)
        pixels = denormalise(batch.images, network.network_preprocessing).mul(255).round().to(torch.uint8)
        shown = pixels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).contiguous().numpy()
        for number, index in enumerate(batch.indices.tolist()):
            name = images.identity(int(places[index]))
            found.append(
                ExampleMask(name, shown[number], batch.labels[number].numpy(), logits[number].argmax(0).numpy())
            )
    return found
