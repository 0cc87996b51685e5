"""Pairs of operations that were found by searching for the best policy on a data set.

E. Cubuk, B. Zoph, D. Mane, V. Vasudevan and Q. Le, AutoAugment: Learning Augmentation Policies from Data, CVPR 2019.
The policies are torchvision's.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from surgeon.augment.base import AugmentConfig, ImageOperation, Kind, option, register
from surgeon.augment.geometry import fill_colour, is_small

if TYPE_CHECKING:
    from surgeon.models.origin import Preprocessing


class FoundOn(StrEnum):
    """The data set that a policy was found on; `auto` chooses by the size of the images."""

    AUTO = "auto"
    CIFAR10 = "cifar10"
    IMAGENET = "imagenet"
    SVHN = "svhn"


class AutoAugmentConfig(AugmentConfig):
    policy: FoundOn = option(FoundOn.AUTO, "cifar10, imagenet or svhn; auto: cifar10 up to 64 px, imagenet above.")


@register("autoaugment", kind=Kind.IMAGE, paper="Cubuk et al., CVPR 2019", config=AutoAugmentConfig)
def autoaugment(config: AutoAugmentConfig, preprocessing: Preprocessing) -> ImageOperation:
    """A random pair of operations, from a policy that was optimised on one data set."""
    from torchvision.transforms import AutoAugment, AutoAugmentPolicy

    by_size = FoundOn.CIFAR10 if is_small(preprocessing) else FoundOn.IMAGENET
    policy = by_size if config.policy is FoundOn.AUTO else config.policy
    operation: ImageOperation = AutoAugment(AutoAugmentPolicy(policy.value), fill=list(fill_colour(preprocessing)))
    return operation
