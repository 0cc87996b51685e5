"""Several chains of operations on one image, mixed with each other and with the image itself.

D. Hendrycks, N. Mu, E. Cubuk, B. Zoph, J. Gilmer and B. Lakshminarayanan, AugMix: A Simple Data Processing Method to
Improve Robustness and Uncertainty, ICLR 2020. The operations are torchvision's; the consistency loss that the paper
trains with is `surgeon.losses.jensen_shannon.jensen_shannon`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.base import AugmentConfig, ImageOperation, Kind, option, register
from surgeon.augment.geometry import fill_colour

if TYPE_CHECKING:
    from surgeon.models.origin import Preprocessing


class AugMixConfig(AugmentConfig):
    severity: int = option(3, "Strength of the operations.", ge=1, le=10)
    width: int = option(3, "Number of chains that are mixed.", ge=1)
    depth: int = option(0, "Operations in each chain; 0 draws 1 to 3.", ge=0)
    alpha: float = option(1.0, "Parameter of the Dirichlet and Beta distributions of the mixing weights.", gt=0)


@register("augmix", kind=Kind.IMAGE, paper="Hendrycks et al., ICLR 2020", config=AugMixConfig)
def augmix(config: AugMixConfig, preprocessing: Preprocessing) -> ImageOperation:
    """Chains of random operations on one image, mixed with each other and with the image."""
    from torchvision.transforms import AugMix

    operation: ImageOperation = AugMix(
        severity=config.severity,
        mixture_width=config.width,
        chain_depth=config.depth or -1,
        alpha=config.alpha,
        all_ops=False,  # as in the paper, without those that resemble its test corruptions
        fill=[float(value) for value in fill_colour(preprocessing)],
    )
    return operation
