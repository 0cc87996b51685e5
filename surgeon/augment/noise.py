"""Independent noise on every pixel.

Used as the strong augmentation of split BatchNorm: A. Merchant et al., Does Data Augmentation Benefit from Split
BatchNorms, 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.base import AugmentConfig, ImageOperation, Kind, option, register

if TYPE_CHECKING:
    from PIL import Image

    from surgeon.models.origin import Preprocessing


class NoiseConfig(AugmentConfig):
    sigma: float = option(0.2, "Standard deviation, where black is 0 and white 1.", gt=0)


@register("gaussian-noise", kind=Kind.IMAGE, paper="Merchant et al., 2020", config=NoiseConfig, keeps_places=True)
def gaussian_noise(config: NoiseConfig, preprocessing: Preprocessing) -> ImageOperation:  # noqa: ARG001
    """Gaussian noise on every pixel and channel, clipped to the valid range."""
    import numpy as np
    from PIL import Image

    def add_noise(image: Image.Image) -> Image.Image:
        pixels = np.asarray(image, dtype=np.float32)
        noisy = pixels + np.random.normal(scale=255 * config.sigma, size=pixels.shape)
        return Image.fromarray(noisy.round().clip(0, 255).astype(np.uint8))

    return add_noise
