"""Between-class learning: images as waves around their mean, mixed so that both are equally strong.

Tokozume et al., "Between-class Learning for Image Classification", CVPR 2018.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.blending import by_examples
from surgeon.augment.mixing import Pairs, ShareConfig, mix

if TYPE_CHECKING:
    from torch import Tensor

SMALL = 1e-6
"""Added to a deviation, so that an image of one colour can be divided by."""


def without_mean(pairs: Pairs) -> Pairs:
    """The same pairs, with the mean over all elements of each image taken away."""
    images = pairs.images
    return Pairs(images - images.mean((1, 2, 3), keepdim=True), pairs.partner, pairs.draws, pairs.alpha)


def balance(lam: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The weight p = 1 / (1 + s1/s2 * (1 - lam)/lam) of the first image, and sqrt(p^2 + (1-p)^2), by deviations s."""
    p = lam * (second + SMALL)
    p = p / (p + (1 - lam) * (first + SMALL))
    return p, (p.square() + (1 - p).square()).sqrt()


@mix("bc-plus", paper="Tokozume et al., CVPR 2018", averages=True)
def bc_plus(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """The average of both images around their means, weighted by contrast; the label takes the share drawn."""
    pairs, lam = without_mean(pairs), pairs.lam()
    deviation = pairs.images.float().square().mean((1, 2, 3)).sqrt()
    p, norm = balance(lam, deviation, deviation[pairs.partner])
    return by_examples(pairs, p).div_(norm.to(pairs.images.dtype)[:, None, None, None]), lam
