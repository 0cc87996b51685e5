"""Mixes that take rows, columns, pixels or single elements from either image at random.

Each is the image's own with probability lam; the label follows how many really are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.blending import blend, by_columns, by_rows
from surgeon.augment.mixing import Pairs, ShareConfig, mix

if TYPE_CHECKING:
    from torch import Tensor


@mix("random-rows")
def random_rows(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Each row from either image at random."""
    return by_rows(pairs, pairs.draws.chances(pairs.lam(), pairs.images.shape[2]))


@mix("random-columns")
def random_columns(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Each column from either image at random."""
    return by_columns(pairs, pairs.draws.chances(pairs.lam(), pairs.images.shape[3]))


@mix("random-pixels")
def random_pixels(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Each pixel from either image at random."""
    own = pairs.draws.chances(pairs.lam(), *pairs.images.shape[2:]).float()
    return blend(pairs, own), own.mean((1, 2))


@mix("random-elements")
def random_elements(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Each channel of each pixel from either image at random."""
    own = pairs.draws.chances(pairs.lam(), *pairs.images.shape[1:]).float()
    return blend(pairs, own), own.mean((1, 2, 3))
