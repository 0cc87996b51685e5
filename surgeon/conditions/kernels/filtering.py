"""Filters: sums of shifted images, which are all blurs."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from surgeon.layers.native import corrupting
from surgeon.layers.native.corrupting import Floats, Places

Border = str
"""How an image continues: `edge` aaa|abc|ccc, `reflect` cba|abc|cba, `mirror` dcb|abcd|cba."""


def apply_filter(image: Floats, offsets: Places, weights: Floats, border: Border) -> Floats:
    """The sum of the image (H, W, C) shifted by `offsets` (taps, 2: down, right), each with its weight.

    Args:
        image: As it is.
        offsets: From each pixel to those that are added up.
        weights: One for each offset.
        border: How the image continues beyond its border.
    """
    margin = int(np.abs(offsets).max(initial=0))
    rows, columns = (places(side, margin, border) for side in image.shape[:2])
    found = corrupting.filtered(image, rows, columns, offsets, weights)
    return found if found is not None else _filtered(image, rows, columns, offsets, weights)


def _filtered(image: Floats, rows: Places, columns: Places, offsets: Places, weights: Floats) -> Floats:
    height, width = image.shape[:2]
    margin = (len(rows) - height) // 2
    padded = image[rows][:, columns]
    found = np.zeros_like(image)
    for (down, right), weight in zip(offsets.tolist(), weights, strict=True):
        found += weight * padded[margin + down : margin + down + height, margin + right : margin + right + width]
    return found


@lru_cache(maxsize=256)
def places(side: int, margin: int, border: Border) -> Places:
    """From where each row of an image with a margin is taken."""
    at = np.arange(-margin, side + margin)
    if border == "edge":
        at = at.clip(0, side - 1)
    elif border == "reflect":
        at = at % (2 * side)
        at = np.minimum(at, 2 * side - 1 - at)
    else:
        period = max(2 * side - 2, 1)
        at = at % period
        at = np.minimum(at, period - at)
    return np.ascontiguousarray(at, dtype=np.int32)


def gaussian_blur(
    image: Floats, sigma: float | tuple[float, float], truncate: float = 4.0, border: Border = "edge"
) -> Floats:
    """A Gaussian filter that ends after `truncate` standard deviations, which are given for rows and columns."""
    for axis, one in enumerate(sigma if isinstance(sigma, tuple) else (sigma, sigma)):
        offsets, weights = _gaussian(one, truncate, axis)
        if len(weights) > 1:
            image = apply_filter(image, offsets, weights, border)
    return image


@lru_cache(maxsize=64)
def _gaussian(sigma: float, truncate: float, axis: int) -> tuple[Places, Floats]:
    radius = int(truncate * sigma + 0.5)
    along = np.arange(-radius, radius + 1)
    offsets = np.zeros((len(along), 2), dtype=np.int32)
    offsets[:, axis] = along
    return offsets, gaussian_weights(along, sigma)


def gaussian_weights(along: npt.NDArray[np.int_], sigma: float) -> Floats:
    """A Gaussian at some places, with sum 1."""
    weights = np.exp(-(along**2) / (2 * sigma**2)) if sigma else (along == 0).astype(np.float64)
    normalised: Floats = (weights / weights.sum()).astype(np.float32)
    return normalised


@lru_cache(maxsize=64)
def disc(radius: float, alias_blur: float) -> tuple[Places, Floats]:
    """A lens out of focus: a disc whose edge is softened by a small Gaussian filter."""
    from scipy.ndimage import correlate1d  # type: ignore[import-untyped]

    reach = math.ceil(radius)
    small = radius <= 8
    extent = 8 if small else reach  # a disc that fills its square is mirrored where it is softened, as published
    along = np.arange(-extent, extent + 1)
    kernel = (along[:, None] ** 2 + along**2 <= radius**2).astype(np.float64)
    kernel /= kernel.sum()
    softening = gaussian_weights(np.arange(-1, 2) if small else np.arange(-2, 3), alias_blur)
    for axis in (0, 1):
        kernel = correlate1d(kernel, softening, axis, mode="mirror")
    used = np.argwhere(kernel > 0)
    return np.ascontiguousarray(used - extent, dtype=np.int32), kernel[tuple(used.T)].astype(np.float32)


def motion(radius: int, sigma: float, angle: float, shape: tuple[int, int]) -> tuple[Places, Floats]:
    """A trail that fades like half a Gaussian, at an angle in degrees; it ends where it would leave the image."""
    steps = np.arange(2 * radius + 1)
    weights = gaussian_weights(steps, sigma)
    direction = math.radians(angle)
    offsets = np.ceil(np.outer(steps, (math.sin(direction), math.cos(direction))) - 0.5).astype(np.int32)
    outside = (np.abs(offsets) >= shape).any(axis=1)
    end = int(outside.argmax()) if outside.any() else len(steps)
    return np.ascontiguousarray(offsets[:end]), weights[:end]


def motion_blur(image: Floats, radius: int, sigma: float, angle: float) -> Floats:
    """The image smeared in one direction."""
    return apply_filter(image, *motion(radius, sigma, angle, (image.shape[0], image.shape[1])), "edge")
