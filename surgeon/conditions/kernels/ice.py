"""Ice crystals for frost: a texture of our own, made of filtered noise, since the published pictures are not ours.

It resembles them in how bright they are, how much they vary, and how fine they are; not in what they show. So figures
for frost cannot be compared with published ones.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from PIL import Image

from surgeon.layers.native.corrupting import Floats

SIDE = 1024
"""Of the texture for images of 224 pixels, in pixels; it joins at its edges."""
REDUCED = 0.2
"""How large the texture is for images of 32 pixels."""
BRIGHTNESS = (95.0, 220.0)
DEVIATION = (13.0, 35.0)
TINT = (-19.0, 4.0, 15.0)
"""What is added to red, green and blue."""


def crystals(generator: np.random.Generator, height: int, width: int, scale: float, small: bool) -> Floats:
    """A random part of the texture, (height, width, 3) from 0 to 255, at a random brightness and contrast.

    Args:
        generator: Which draws them.
        height: Of the part.
        width: Of the part.
        scale: Of the image, compared with the size that its parameters are for.
        small: Whether that is 32 pixels, for which the texture is reduced.
    """
    texture = _texture(max(round(SIDE * scale * (REDUCED if small else 1)), 8))
    top, left = generator.integers(0, len(texture), size=2)
    rows, columns = (np.arange(start, start + side) % len(texture) for start, side in ((top, height), (left, width)))
    part = texture[rows[:, None], columns]
    if generator.random() < 0.5:
        part = part[:, ::-1]
    brightness, deviation = generator.uniform(*BRIGHTNESS), generator.uniform(*DEVIATION)
    grey = (part * np.float32(deviation) + np.float32(brightness))[..., None]
    found: Floats = (grey + np.array(TINT, np.float32)).clip(0, 255)
    return found


@lru_cache(maxsize=4)
def _texture(side: int) -> Floats:
    """The texture at some size, with mean 0 and deviation 1."""
    full = _full_texture()
    if side == SIDE:
        return full
    picture = Image.fromarray(full)
    # The published pictures are reduced without averaging, which leaves what is fine in them as noise.
    resized = picture.resize((side, side), Image.Resampling.NEAREST if side < SIDE else Image.Resampling.BICUBIC)
    return np.asarray(resized)


@lru_cache(maxsize=1)
def _full_texture() -> Floats:
    """Clouds, ridges and needles in several directions: white noise, filtered; always the same."""
    generator = np.random.Generator(np.random.PCG64(20190604))
    frequency = np.fft.fftfreq(SIDE)
    down, right = frequency[:, None], frequency[None, : SIDE // 2 + 1]
    distance = np.hypot(down, right)
    distance[0, 0] = 1.0  # the mean, which `noise` takes away

    def noise(spectrum: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
        white = np.fft.rfft2(generator.standard_normal((SIDE, SIDE)))
        return _standard(np.fft.irfft2(white * spectrum, (SIDE, SIDE)))

    ridges = -np.abs(noise(np.exp(-((distance / 0.05) ** 2)) * distance))
    needles = np.zeros((SIDE, SIDE))
    for angle in np.arange(6) * math.pi / 6:
        along = down * math.sin(angle) + right * math.cos(angle)
        across = right * math.sin(angle) - down * math.cos(angle)
        needles = np.maximum(needles, noise(np.exp(-((along / 0.02) ** 2) - ((across / 0.15) ** 2)) * np.abs(across)))
    mixed = 1.4 * noise(distance**-1.0) + 0.7 * _standard(ridges) + 0.8 * _standard(needles)
    return _standard(mixed).astype(np.float32)


def _standard(field: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
    found: np.typing.NDArray[np.float64] = (field - field.mean()) / field.std()
    return found
