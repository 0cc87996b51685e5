"""Changes of colour as in HSV: value and saturation, with the hue as it is."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from surgeon.layers.native.corrupting import Bytes, Floats


def brighten(image: Bytes, added: float) -> Floats:
    """The largest channel of each pixel larger by `added` (of 1), the others in proportion; black becomes grey."""
    value = _largest(image)
    found = image * _gain(added)[value][..., None]
    if not value.all():
        found[value == 0] = 255 * min(added, 1)
    return found


@lru_cache(maxsize=16)
def _gain(added: float) -> Floats:
    value = np.arange(256) / 255
    return (np.minimum(value + added, 1) / np.maximum(value, 1 / 255)).astype(np.float32)


def saturate(image: Bytes, factor: float, added: float) -> Floats:
    """Saturation times a factor plus `added`; grey counts as red without saturation."""
    value = _largest(image).astype(np.float32)
    least = image.min(axis=-1)
    span = value - least
    saturation = span / np.maximum(value, 1)
    wanted = (saturation * factor + added).clip(0, 1)
    gain = wanted / np.maximum(saturation, 1e-9)
    found: Floats = value[..., None] - (value[..., None] - image) * gain[..., None]
    grey = span == 0
    found[grey] = value[grey][:, None]
    found[..., 1:][grey] *= (1 - wanted[grey])[:, None]
    return found


def grey_of(image: Floats) -> Floats:
    """How bright each pixel is (H, W, 1), with the weights of ITU-R 601."""
    if image.shape[-1] == 1:
        return image
    found: Floats = (image @ np.array([0.299, 0.587, 0.114], dtype=np.float32))[..., None]
    return found


def _largest(image: Bytes) -> Bytes:
    found = image[..., 0]
    for channel in range(1, image.shape[-1]):
        found = np.maximum(found, image[..., channel])
    return found
