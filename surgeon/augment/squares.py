"""Mixes that replace a box."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.blending import by_boxes
from surgeon.augment.mixing import MixConfig, Pairs, ShareConfig, mix

if TYPE_CHECKING:
    from torch import Tensor


@mix("cutmix", paper="Yun et al., ICCV 2019")
def cutmix(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """A box with the image's aspect ratio is replaced by the same box of the partner.

    It has the share 1 - lam of the area and its middle anywhere; what is cut off at the border goes to
    the image's own share.
    """
    import torch

    height, width = pairs.images.shape[2:]
    part = (1 - pairs.lam()).sqrt_()  # of each side
    lengths = torch.stack([part * height, part * width], 1).round_()
    return by_boxes(pairs, *pairs.draws.boxes(lengths, height, width))


@mix("random-square", config=MixConfig)
def random_square(pairs: Pairs, config: MixConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """A square of half the image's side, centred anywhere, is replaced by one from anywhere in the partner."""
    import torch

    count, _, height, width = pairs.images.shape
    sizes = torch.tensor([height, width], dtype=torch.float32, device=pairs.images.device)
    start, stop = pairs.draws.boxes(sizes.new_full((count, 2), min(height, width) // 2), height, width)
    return by_boxes(pairs, start, stop, pairs.draws.below(sizes - (stop - start) + 1))
