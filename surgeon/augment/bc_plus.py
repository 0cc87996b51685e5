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


def balance(lam: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The weight p = 1 / (1 + s1/s2 * (1 - lam)/lam) of the first image, and sqrt(p^2 + (1-p)^2), by deviations s."""
    import torch

    first, second = first + SMALL, second + SMALL
    p = lam * second / torch.lerp(first, second, lam)
    return p, torch.hypot(p, p - 1)


def moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation (N,) over all elements of each image."""
    import torch

    images = images if images.dtype.itemsize > 2 else images.float()
    mean = images.mean((1, 2, 3)).float()
    square = torch.linalg.vector_norm(images, dim=(1, 2, 3)).float().square() / images[0].numel()
    return mean, (square - mean.square()).clamp_(min=0).sqrt_()


def column(values: Tensor, images: Tensor) -> Tensor:
    """Values (N,), one for each image, that broadcast over it."""
    return values.to(images.dtype)[:, None, None, None]


@mix("bc-plus", paper="Tokozume et al., CVPR 2018", averages=True)
def bc_plus(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """The average of both images around their means, weighted by contrast; the label takes the share drawn."""
    import torch

    lam, (mean, deviation) = pairs.lam(), moments(pairs.images)
    p, norm = balance(lam, deviation, deviation[pairs.partner])
    offset = torch.lerp(mean[pairs.partner], mean, p)
    mixed = by_examples(pairs, p)
    return mixed.sub_(column(offset, mixed)).div_(column(norm, mixed)), lam
