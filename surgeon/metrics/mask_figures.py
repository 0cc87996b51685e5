"""Figures of predicted masks: IoU, and the pixel forms of what classification has too.

The IoU of a class is the number of pixels that are of it and were taken for it, over those that are of it or were taken
for it, counted over all images together (M. Everingham et al., The Pascal Visual Object Classes Challenge, IJCV 2010).
The mean is over the classes that the images show: a class without a pixel has no IoU, and pixels that were wrongly
taken for it count against the classes that they are of.

Each figure is a ratio of sums over images, or a mean of some. To first order it changes with an image by
`(numerator - ratio * denominator) / mean denominator`. So intervals are those of drawing images, not pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from surgeon.core.lazy import LazyModule
from surgeon.metrics.base import on_masks, register
from surgeon.metrics.likelihood import scaled_spread
from surgeon.metrics.spread import Spread, of_absolute_values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from surgeon.metrics.accumulator import ImageScores
    from surgeon.metrics.mask_scores import MaskImages

    Array = NDArray[np.float64]
else:
    np = LazyModule("numpy")


def of_masks(images: ImageScores) -> MaskImages:
    """What is known of images with masks."""
    return cast("MaskImages", images)


def _ratio(numerators: Array, denominators: Array) -> Any:
    """Of sums over images; by class, if there is one column for each."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return numerators.sum(axis=0) / denominators.sum(axis=0)


def _by_image(numerators: Array, denominators: Array) -> Array:
    """Numbers, one for each image, whose mean is the ratio."""
    ratio = _ratio(numerators, denominators)
    found: Array = ratio + (numerators - ratio * denominators) / denominators.mean(axis=0)
    return found


def _of_pixels(images: ImageScores, numerators: Array) -> float | None:
    pixels = of_masks(images).pixels
    return float(_ratio(numerators, pixels)) if pixels.sum() else None


def iou_by_class(images: MaskImages) -> Array:
    """NaN for classes that the images do not show."""
    found: Array = np.where(images.present, _ratio(images.of("intersection"), images.union), np.nan)
    return found


def iou_values(images: MaskImages) -> Array:
    """For each image a number, by class, whose means are the IoU; of classes that the images show."""
    return _by_image(images.of("intersection")[:, images.present], images.union[:, images.present])


def _iou_spread(images: ImageScores) -> Spread:
    return Spread(iou_values(of_masks(images)).mean(axis=1))


@on_masks("iou", spread=_iou_spread)
def mean_iou(images: ImageScores) -> float | None:
    """Mean over the classes that the images show."""
    found = iou_by_class(of_masks(images))
    return float(np.nanmean(found)) if of_masks(images).present.any() else None


@register(
    "iou",
    higher_is_better=True,
    label="mean IoU",
    format=".2%",
    bounds=(0, 1),
    rank=-1,
    paper="Everingham et al., IJCV 2010",
    only_masks=True,
)
def iou(images: ImageScores) -> float | None:  # noqa: ARG001
    """Mean IoU of masks: intersection over union, averaged over the classes that the images show."""
    return None


def _right(images: ImageScores) -> Array:
    found: Array = of_masks(images).of("intersection").sum(axis=1)
    return found


def _accuracy_spread(images: ImageScores) -> Spread:
    return Spread(_by_image(_right(images), of_masks(images).pixels))


@on_masks("accuracy", spread=_accuracy_spread)
def pixel_accuracy(images: ImageScores) -> float | None:
    """Share of the pixels that are right."""
    return _of_pixels(images, _right(images))


def _cross_entropy_spread(images: ImageScores) -> Spread:
    return Spread(_by_image(of_masks(images).of("cross_entropy"), of_masks(images).pixels))


@on_masks("cross-entropy", spread=_cross_entropy_spread)
def pixel_cross_entropy(images: ImageScores) -> float | None:
    """Mean over the pixels."""
    return _of_pixels(images, of_masks(images).of("cross_entropy"))


@on_masks("scaled-cross-entropy", spread=scaled_spread)
def pixel_scaled_cross_entropy(images: ImageScores) -> float | None:
    """Mean over the pixels at the best single temperature."""
    return images.scaled.cross_entropy if of_masks(images).pixels.sum() else None


def _surplus(images: ImageScores) -> Array:
    """Confidence beyond what was right, by image and bin."""
    bins = of_masks(images).of("bins")
    found: Array = bins[:, 1] - bins[:, 2]
    return found


def _ece_spread(images: ImageScores) -> Spread:
    surplus, pixels = _surplus(images), of_masks(images).pixels
    total = pixels.sum()
    means = surplus.sum(axis=0) / total
    errors = surplus.std(axis=0) * np.sqrt(len(surplus)) / total
    return Spread(_by_image(surplus @ np.sign(means), pixels), of_absolute_values(means, errors))


@on_masks("ece", spread=_ece_spread)
def pixel_ece(images: ImageScores) -> float | None:
    """Over the pixels."""
    pixels = of_masks(images).pixels.sum()
    return float(np.abs(_surplus(images).sum(axis=0)).sum() / pixels) if pixels else None
