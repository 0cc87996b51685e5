"""From a picture of any size to the part that the network sees: the crop of evaluation, and the random one of training.

K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016 (pad and crop); C. Szegedy et al., Going Deeper
with Convolutions, CVPR 2015 (random resized crop).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from surgeon.augment.base import AugmentConfig, ImageOperation, Kind, option, register

if TYPE_CHECKING:
    from PIL import Image

    from surgeon.models.sources import Preprocessing

LARGEST_PADDED = 64
"""Up to this size, pictures are padded and cropped; larger ones are cropped and resized."""

PADDING = 1 / 8
"""Of the side: the usual 4 pixels at 32."""


def fill_colour(preprocessing: Preprocessing) -> tuple[int, ...]:
    """The colour that is zero after normalisation, one byte per channel."""
    return tuple(min(max(round(255 * mean), 0), 255) for mean in preprocessing.mean)


def is_small(preprocessing: Preprocessing) -> bool:
    """Whether the network takes small pictures, for which papers have values of their own."""
    return max(preprocessing.input_size[-2:]) <= LARGEST_PADDED


@cache
def evaluation_geometry(preprocessing: Preprocessing) -> ImageOperation:
    """The same resizing and centre crop as in evaluation; one object for one preprocessing."""
    from surgeon.data.transforms import Transform

    transform = Transform(preprocessing)
    # All but the last step, which makes a tensor of the picture.
    return _in_mode(transform.mode, transform.geometry.transforms[:-1])


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
    return _in_mode(Transform(preprocessing).mode, steps)


def _in_mode(mode: str, steps: list[ImageOperation]) -> ImageOperation:
    """The steps one after the other, on a picture that is grey or in colour as the network wants it."""

    def apply(image: Image.Image) -> Image.Image:
        if image.mode != mode:
            image = image.convert(mode)
        for step in steps:
            image = step(image)
        return image

    return apply
