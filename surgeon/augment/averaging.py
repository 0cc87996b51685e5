"""Mixes in which every pixel is an average of both images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.base import option
from surgeon.augment.blending import by_examples, by_noise
from surgeon.augment.mixing import Pairs, ShareConfig, mix

if TYPE_CHECKING:
    from torch import Tensor


class NoisyMixupConfig(ShareConfig):
    noise: float = option(0.025, "Standard deviation of the noise on each pixel's weight.", ge=0)


@mix("mixup", paper="Zhang et al., ICLR 2018", averages=True)
def mixup(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """The weighted average of both images."""
    lam = pairs.lam()
    return by_examples(pairs, lam), lam


@mix("noisy-mixup", config=NoisyMixupConfig, averages=True)
def noisy_mixup(pairs: Pairs, config: NoisyMixupConfig) -> tuple[Tensor, Tensor]:
    """Mixup with Gaussian noise on each pixel's weight, clipped to 0 to 1.

    The label follows the mean of the shares, which clipping moves away from the ends.
    """
    import torch

    count, _, height, width = pairs.images.shape
    # Gaussian draws are expensive: four images share theirs, negated and mirrored. Within an image all are independent.
    noise = pairs.draws.normal(-(-count // 4), height, width).mul_(config.noise)
    noise = torch.cat([noise, noise.flip(2)])
    noise = torch.cat([noise, -noise])[:count]
    return by_noise(pairs, pairs.lam(), noise)
