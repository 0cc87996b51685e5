"""A few random operations on each image, all with one magnitude.

E. Cubuk, B. Zoph, J. Shlens and Q. Le, RandAugment: Practical automated data augmentation with a reduced search
space, NeurIPS 2020. The operations are timm's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surgeon.augment.base import AugmentConfig, ImageOperation, Kind, option, register
from surgeon.augment.geometry import fill_colour

if TYPE_CHECKING:
    from surgeon.models.origin import Preprocessing

SCALE = 10
"""The magnitude at which an operation has the strength that AutoAugment gives it at most."""

WEAKEST = 3
"""Below it posterising would keep no bit at all, which Pillow refuses."""

TRANSLATION = 0.45
"""Of the shorter side: the farthest that an image is moved at full magnitude."""


class RandAugmentConfig(AugmentConfig):
    num_ops: int = option(2, "Operations on each image, N in the paper.", ge=1)
    magnitude: int = option(9, "Strength of each, M in the paper: 3 to 30.", ge=WEAKEST, le=30)


@register("randaugment", kind=Kind.IMAGE, paper="Cubuk et al., NeurIPS 2020", config=RandAugmentConfig)
def randaugment(config: RandAugmentConfig, preprocessing: Preprocessing) -> ImageOperation:
    """A few random operations, all with one magnitude; by default the paper's values for ImageNet."""
    from timm.data.auto_augment import rand_augment_transform

    colour = fill_colour(preprocessing)
    hparams: dict[str, Any] = {
        "img_mean": colour if len(colour) > 1 else colour[0],
        "translate_const": int(TRANSLATION * min(preprocessing.input_size[-2:])),
    }
    # p1: every drawn operation is applied, as in the paper; timm by default applies every other one. Not timm's `inc`:
    # the paper's magnitudes belong to its published code, in which 5 leaves colours alone and posterising weakens.
    strength = f"m{config.magnitude}-mmax{max(config.magnitude, SCALE)}"
    operation: ImageOperation = rand_augment_transform(f"rand-{strength}-n{config.num_ops}-p1", hparams)
    return operation
