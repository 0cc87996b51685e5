"""Random numbers, faster than numpy's own: by the inverse of their distribution."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from surgeon.layers.native import corrupting
from surgeon.layers.native.corrupting import Bytes, Floats, Places

_PARTS = 4096


def normals(generator: np.random.Generator, shape: tuple[int, ...], scale: float = 1.0) -> Floats:
    """Independent Gaussian numbers of mean 0, from 32 random bits each."""
    words = generator.integers(0, 2**32, size=shape, dtype=np.uint32)
    quantiles, tail = _quantiles()
    found = corrupting.normals(words, quantiles, tail, scale)
    return found if found is not None else _normals(words, quantiles, tail, scale)


def _normals(words: npt.NDArray[np.uint32], quantiles: Floats, tail: Floats, scale: float) -> Floats:
    part, within = words >> 20, words & 0xFFFFF
    found = quantiles[part] + within.astype(np.float32) / 2**20 * (quantiles[part + 1] - quantiles[part])
    for outermost, sign in ((0, 1), (_PARTS - 1, -1)):
        chosen = part == outermost
        inner = within[chosen] if sign > 0 else 0xFFFFF - within[chosen]
        piece = inner >> 8
        found[chosen] = sign * (tail[piece] + (inner & 0xFF).astype(np.float32) / 256 * (tail[piece + 1] - tail[piece]))
    scaled: Floats = found * np.float32(scale)
    return scaled


@lru_cache(maxsize=1)
def _quantiles() -> tuple[Floats, Floats]:
    """Those of 4096 equally likely parts, and of 4096 parts of the first of them."""
    from scipy.special import ndtri  # type: ignore[import-untyped]

    shares = np.arange(_PARTS + 1) / _PARTS
    least = 0.5 / 2**32  # of what 32 bits can tell apart
    return ndtri(shares.clip(least, 1 - least)).astype(np.float32), ndtri((shares / _PARTS).clip(least)).astype(
        np.float32
    )


def poisson(generator: np.random.Generator, image: Bytes, photons: float) -> Bytes:
    """Bytes as if a white pixel had got so many photons on average, counted and scaled back."""
    uniform = generator.random(image.shape, dtype=np.float32)
    cumulative, guide, byte_of = _poisson(photons)
    found = corrupting.drawn(image, uniform, cumulative, guide, byte_of)
    if found is not None:
        return found
    found = np.empty_like(image)
    for level in np.unique(image):
        chosen = image == level
        counts = np.searchsorted(cumulative[level], uniform[chosen], side="right")
        found[chosen] = byte_of[counts.clip(max=len(byte_of) - 1)]
    return found


@lru_cache(maxsize=16)
def _poisson(photons: float) -> tuple[Floats, Places, Bytes]:
    """Cumulative probabilities (256, counts), where to begin to look for a share, and the byte of each count."""
    from scipy.stats import poisson as distribution  # type: ignore[import-untyped]

    most = int(distribution.isf(1e-9, photons)) + 2
    counts = np.arange(most)
    cumulative = distribution.cdf(counts, np.arange(256)[:, None] * (photons / 255)).astype(np.float32)
    shares = np.arange(256, dtype=np.float32) / 256
    guide = np.stack([np.searchsorted(row, shares, side="right") for row in cumulative]).astype(np.int32)
    byte_of = (np.minimum(counts / photons, 1) * 255).astype(np.uint8)
    return cumulative, guide.clip(max=most - 1), byte_of
