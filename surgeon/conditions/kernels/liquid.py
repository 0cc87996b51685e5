"""Drops on a lens: water, which shines at its edges, and mud, which hides what is behind it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage  # type: ignore[import-untyped]

from surgeon.conditions.kernels.drawing import normals
from surgeon.conditions.kernels.filtering import gaussian_blur
from surgeon.layers.native.corrupting import Bytes, Floats

WATER = np.array([175, 238, 238], np.float32)
"""Pale turquoise."""
MUD = np.array([63, 42, 20], np.float32)
WEAK, STRONG = 50, 150
"""Gradients of edges: those above the larger are edges, those above the smaller if they are joined to one."""
FARTHEST = 20
SLOPE = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
"""By which the light falls from one side."""


def layer(generator: np.random.Generator, shape: tuple[int, int], mean: float, deviation: float, size: float) -> Floats:
    """Smoothed noise (H, W), which is liquid where it is large."""
    noise = normals(generator, (*shape, 1), deviation) + np.float32(mean)
    return gaussian_blur(noise, size)[..., 0]


def mud(liquid: Floats, threshold: float, softness: float) -> Floats:
    """How much is hidden (H, W, 1), from 0 to 1."""
    cover = gaussian_blur((liquid > threshold).astype(np.float32)[..., None], softness)
    cover[cover < 0.8] = 0
    return cover


def water(liquid: Floats, threshold: float, strength: float) -> Floats:
    """How much light is added (H, W, 1): it depends on how far the edge of a drop is, and on which side."""
    drops = np.where(liquid < threshold, 0, liquid * 255).clip(0, 255).astype(np.uint8)
    edges = _edges(drops)
    distance = ndimage.distance_transform_edt(~edges) if edges.any() else np.full(drops.shape, np.inf)
    near = _mean_of_nine(np.minimum(distance, FARTHEST)).astype(np.uint8)
    lit = ndimage.correlate(_equalised(near).astype(np.int32), SLOPE, mode="mirror").clip(0, 255)
    light = drops * np.floor(_mean_of_nine(lit) + 0.5)
    brightest = light.max()
    shown: Floats = (light * (strength / brightest if brightest else 0)).astype(np.float32)[..., None]
    return shown


def _mean_of_nine(image: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = ndimage.uniform_filter(image.astype(np.float64), 3, mode="mirror")
    return found


def _equalised(image: Bytes) -> Bytes:
    """Brightness by rank: as many dark as bright pixels."""
    counts = np.bincount(image.ravel(), minlength=256)
    up_to = np.cumsum(counts)
    first = counts[counts > 0][0]
    if first == image.size:
        return image
    new = np.rint((up_to - first).clip(0) * (255 / (image.size - first))).astype(np.uint8)
    ranked: Bytes = new[image]
    return ranked


def _edges(image: Bytes) -> npt.NDArray[np.bool_]:
    """Canny's edges: gradients that are largest across their own direction, and strong or joined to strong ones."""
    values = image.astype(np.float64)
    right, down = (ndimage.sobel(values, axis, mode="nearest") for axis in (1, 0))
    strength = np.abs(right) + np.abs(down)
    padded = np.pad(strength, 1)
    height, width = image.shape

    def beside(rows: int, columns: int) -> npt.NDArray[np.float64]:
        return padded[1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    steep, flat = np.abs(down) > 2.414213562 * np.abs(right), np.abs(down) < 0.414213562 * np.abs(right)
    falling = right * down > 0
    before = np.select([flat, steep, falling], [beside(0, -1), beside(-1, 0), beside(-1, -1)], beside(-1, 1))
    after = np.select([flat, steep, falling], [beside(0, 1), beside(1, 0), beside(1, 1)], beside(1, -1))
    ridge = (strength > before) & (strength >= after) & (strength > WEAK)
    labels, count = ndimage.label(ridge, structure=np.ones((3, 3)))
    strong = np.zeros(count + 1, dtype=bool)
    strong[labels[ridge & (strength > STRONG)]] = True
    joined: npt.NDArray[np.bool_] = strong[labels] & ridge
    return joined
