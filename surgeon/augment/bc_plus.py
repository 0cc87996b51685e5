"""Between-class learning: images as waves around their mean, mixed so that both are equally strong.

Tokozume et al., "Between-class Learning for Image Classification", CVPR 2018.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.blending import by_factors
from surgeon.augment.mixing import Pairs, ShareConfig, mix

if TYPE_CHECKING:
    from torch import Tensor

SMALL = 1e-6
"""Added to a deviation, so that an image of one colour can be divided by."""


def balance(lam: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The weight p = 1 / (1 + s1/s2 * (1 - lam)/lam) of the first image, and sqrt(p^2 + (1-p)^2), by deviations s."""
    import torch

    first, second = first + SMALL, second + SMALL
    p = lam * second / torch.lerp(first, second, lam)
    return p, torch.hypot(p, p - 1)


@mix("bc-plus", paper="Tokozume et al., CVPR 2018", averages=True)
def bc_plus(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Average of both images around their means, balanced by contrast; the label has the weight as drawn."""
    import torch

    from surgeon.layers.native import mixing

    images, partner, lam = pairs.images, pairs.partner, pairs.lam()
    made = mixing.waves(images, partner, lam, SMALL)
    if made is not None:
        return made, lam
    variance, mean = torch.var_mean(images.float(), (1, 2, 3), correction=0)
    p, norm = balance(lam, variance.sqrt(), variance.sqrt()[partner])
    first, second = p / norm, (1 - p) / norm
    return by_factors(pairs, first, second, first * mean + second * mean[partner]), lam
