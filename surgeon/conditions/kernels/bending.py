"""Images whose pixels are moved: by a random affine map, and by random displacements."""

from __future__ import annotations

import numpy as np

from surgeon.conditions.kernels.filtering import gaussian_blur
from surgeon.conditions.kernels.resampling import mirror, reflect, sample
from surgeon.layers.native.corrupting import Floats


def slanted(generator: np.random.Generator, image: Floats, far: float) -> Floats:
    """The affine map that moves three points around the middle by up to `far` pixels in each direction."""
    height, width = image.shape[:2]
    middle, arm = np.array([width // 2, height // 2]), min(height, width) // 3
    before = middle + arm * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + generator.uniform(-far, far, size=(3, 2))
    # From each new pixel back to where it comes from: (x, y, 1) of the points times `back` is (x, y) before.
    back = np.linalg.solve(np.column_stack([after, np.ones(3)]), before).astype(np.float32)
    x, y = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)[:, None]
    columns, rows = (x * back[0, axis] + y * back[1, axis] + back[2, axis] for axis in (0, 1))
    return sample(image, mirror(rows, height), mirror(columns, width))


def displaced(generator: np.random.Generator, image: Floats, far: float, sigma: tuple[float, float]) -> Floats:
    """Every pixel displaced by smoothed uniform noise from -far to far, which leaves it much less than that.

    Args:
        generator: Which draws the displacements.
        image: (H, W, C).
        far: In pixels.
        sigma: Of the Gaussian filter by which they are smoothed, for rows and columns.
    """
    height, width = image.shape[:2]
    drawn = generator.random((height, width, 2), dtype=np.float32) * np.float32(2 * far) - np.float32(far)
    moved = gaussian_blur(drawn, sigma, truncate=3.0, border="reflect")
    rows = np.arange(height, dtype=np.float32)[:, None] + moved[..., 0]
    columns = np.arange(width, dtype=np.float32) + moved[..., 1]
    return sample(image, reflect(rows, height), reflect(columns, width))
