"""The random crop of training, with a flip.

K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016 (pad and crop); C. Szegedy et al., Going Deeper
with Convolutions, CVPR 2015 (random resized crop).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.base import AugmentConfig, ImageOperation, JointOperation, Kind, option, register
from surgeon.augment.geometry import LARGEST_PADDED, evaluation_geometry, fill_colour, in_mode, is_small

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from surgeon.models.origin import Preprocessing

PADDING = 1 / 8
"""Of the side: the usual 4 pixels at 32."""


MASKS_SCALE, MASKS_RATIO = 0.25, 3 / 4
"""Of images with masks: the smallest share of the picture, and how far proportions may be from those of the input."""


class StandardConfig(AugmentConfig):
    flip: bool = option(True, "Mirror half of the images; not for digits and letters.")
    scale: float = option(
        0.08,
        f"Above {LARGEST_PADDED} px: smallest share of the picture that a crop keeps; 0.35 or more suits fine-tuning. "
        "Default with masks: 0.25.",
        gt=0,
        le=1,
    )


def _joint(config: StandardConfig, preprocessing: Preprocessing) -> JointOperation:
    """A random part of the picture and of its mask, resized and flipped; with a scale of its own."""
    import torch
    from torchvision import tv_tensors
    from torchvision.transforms import InterpolationMode, v2

    from surgeon.data.transforms import Transform

    height, width = preprocessing.input_size[-2:]
    proportion = width / height
    steps: list[torch.nn.Module] = [
        v2.RandomResizedCrop(
            (height, width),
            scale=(config.scale if "scale" in config.model_fields_set else MASKS_SCALE, 1.0),
            ratio=(proportion * MASKS_RATIO, proportion / MASKS_RATIO),
            interpolation=InterpolationMode(preprocessing.interpolation),
        )
    ]
    both = v2.Compose([*steps, v2.RandomHorizontalFlip()] if config.flip else steps)
    mode = Transform(preprocessing).mode

    def apply(image: Image.Image, mask: Tensor) -> tuple[Image.Image, Tensor]:
        picture, labels = both(image if image.mode == mode else image.convert(mode), tv_tensors.Mask(mask))
        return picture, labels.as_subclass(torch.Tensor)

    return apply


@register(
    "standard",
    kind=Kind.GEOMETRY,
    paper="He et al., CVPR 2016; Szegedy et al., CVPR 2015",
    config=StandardConfig,
    joint=_joint,
)
def standard(config: StandardConfig, preprocessing: Preprocessing) -> ImageOperation:
    """Random crop and flip; up to 64 px the picture is padded first, above that the crop is resized."""
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
