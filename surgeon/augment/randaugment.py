"""A few random operations on each image, all with one magnitude.

E. Cubuk, B. Zoph, J. Shlens and Q. Le, RandAugment: Practical automated data augmentation with a reduced search
space, NeurIPS 2020. The operations are timm's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surgeon.augment.base import AugmentConfig, ImageOperation, Kind, option, register
from surgeon.augment.geometry import fill_colour

if TYPE_CHECKING:
    from surgeon.models.sources import Preprocessing

STRONGEST = 9
"""On the paper's scale of 10, where posterising would keep no bit, which Pillow refuses."""

TRANSLATION = 0.45
"""Of the shorter side: the farthest that an image is moved at full magnitude."""


class RandAugmentConfig(AugmentConfig):
    num_ops: int = option(2, "Operations on each image, N in the paper.", ge=1)
    magnitude: int = option(9, "Strength of each, M in the paper: 0 to 9.", ge=0, le=STRONGEST)


@register("randaugment", kind=Kind.IMAGE, paper="Cubuk et al., NeurIPS 2020", config=RandAugmentConfig)
def randaugment(config: RandAugmentConfig, preprocessing: Preprocessing) -> ImageOperation:
    """A few random operations, all with one magnitude; by default the paper's values for ImageNet."""
    from timm.data.auto_augment import rand_augment_transform

    colour = fill_colour(preprocessing)
    hparams: dict[str, Any] = {
        "img_mean": colour if len(colour) > 1 else colour[0],
        "translate_const": int(TRANSLATION * min(preprocessing.input_size[-2:])),
    }
    # p1: every drawn operation is applied, as in the paper, which timm by default does to every other one. inc1: every
    # operation grows with the magnitude, as the paper says; in its published code some are strongest at 0.
    operation: ImageOperation = rand_augment_transform(f"rand-m{config.magnitude}-inc1-n{config.num_ops}-p1", hparams)
    return operation
