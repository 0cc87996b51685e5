"""Brightness, contrast and saturation, changed at random.

A. Krizhevsky, I. Sutskever and G. Hinton, ImageNet Classification with Deep Convolutional Neural Networks, NeurIPS
2012, and A. Howard, Some Improvements on Deep Convolutional Neural Network Based Image Classification, 2013.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.base import AugmentConfig, ImageOperation, Kind, option, register

if TYPE_CHECKING:
    from surgeon.models.origin import Preprocessing


class JitterConfig(AugmentConfig):
    strength: float = option(0.4, "Each is multiplied by a factor between 1 - strength and 1 + strength.", gt=0, le=1)


@register("colour-jitter", kind=Kind.IMAGE, paper="Howard, 2013", config=JitterConfig, keeps_places=True)
def colour_jitter(config: JitterConfig, preprocessing: Preprocessing) -> ImageOperation:  # noqa: ARG001
    """Random brightness, contrast and saturation, in random order."""
    from torchvision.transforms import ColorJitter

    operation: ImageOperation = ColorJitter(config.strength, config.strength, config.strength)
    return operation
