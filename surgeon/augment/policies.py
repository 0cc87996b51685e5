"""The two sides of training with split BatchNorm, with the values of the papers for small and for large images.

A. Merchant, B. Zoph and E. Cubuk, Does Data Augmentation Benefit from Split BatchNorms, 2020. The values of
RandAugment are its paper's for CIFAR-10 (Wide-ResNet-28-10) and for ImageNet (ResNet-50).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.base import AugmentConfig, Kind, option, register
from surgeon.augment.geometry import is_small

if TYPE_CHECKING:
    from surgeon.models.origin import Preprocessing


class PolicyConfig(AugmentConfig):
    flip: bool = option(True, "Mirror half of the images; not for digits and letters.")


def _standard(config: PolicyConfig) -> str:
    return f"standard:flip={config.flip}"


@register("weak", kind=Kind.POLICY, paper="Merchant et al., 2020", config=PolicyConfig)
def weak(config: PolicyConfig, preprocessing: Preprocessing) -> tuple[str, ...]:  # noqa: ARG001
    """standard + cutout of its usual size: 16 px at 32 px, 90 px at 224 px."""
    return _standard(config), "cutout"


@register("strong", kind=Kind.POLICY, paper="Merchant et al., 2020; Cubuk et al., NeurIPS 2020", config=PolicyConfig)
def strong(config: PolicyConfig, preprocessing: Preprocessing) -> tuple[str, ...]:
    """standard + RandAugment: 3 operations of magnitude 5 up to 64 px, 2 of magnitude 9 above."""
    values = "num_ops=3,magnitude=5" if is_small(preprocessing) else "num_ops=2,magnitude=9"
    return _standard(config), f"randaugment:{values}"
