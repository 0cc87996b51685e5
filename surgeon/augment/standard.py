"""The random crop of training, with a flip.

K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016 (pad and crop); C. Szegedy et al., Going Deeper
with Convolutions, CVPR 2015 (random resized crop).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.base import AugmentConfig, ImageOperation, Kind, option, register
from surgeon.augment.geometry import LARGEST_PADDED, evaluation_geometry, fill_colour, in_mode, is_small

if TYPE_CHECKING:
    from surgeon.models.sources import Preprocessing

PADDING = 1 / 8
"""Of the side: the usual 4 pixels at 32."""


class StandardConfig(AugmentConfig):
    flip: bool = option(True, "Mirror every other picture; not for digits and letters.")
    scale: float = option(
        0.08,
        f"Above {LARGEST_PADDED} px: smallest share of the picture that a crop keeps; 0.35 and more suit fine-tuning.",
        gt=0,
        le=1,
    )


@register(
    "standard", kind=Kind.GEOMETRY, paper="He et al., CVPR 2016; Szegedy et al., CVPR 2015", config=StandardConfig
)
def standard(config: StandardConfig, preprocessing: Preprocessing) -> ImageOperation:
    """A random crop and a flip: of the padded picture up to 64 px, resized above."""
    from timm.data.transforms import RandomResizedCropAndInterpolation
    from torchvision.transforms import RandomCrop, RandomHorizontalFlip

    from surgeon.data.transforms import Transform

    height, width = preprocessing.input_size[-2:]
    steps: list[ImageOperation] = [RandomHorizontalFlip()] if config.flip else []
    if is_small(preprocessing):
        padding = (round(width * PADDING), round(height * PADDING))
        crop = RandomCrop((height, width), padding=padding, fill=fill_colour(preprocessing))
        steps = [evaluation_geometry(preprocessing), crop, *steps]
    else:
        how = {"scale": (config.scale, 1.0), "interpolation": preprocessing.interpolation}
        steps = [RandomResizedCropAndInterpolation((height, width), **how), *steps]  # type: ignore[no-untyped-call]
    return in_mode(Transform(preprocessing).mode, steps)
