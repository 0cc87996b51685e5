"""Mixes that take rows, columns, pixels or single elements from either image at random.

Each is the image's own with probability lam; the label follows how many really are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.blending import by_chance, by_columns, by_rows
from surgeon.augment.mixing import Pairs, ShareConfig, mix

if TYPE_CHECKING:
    from torch import Tensor


@mix("random-rows")
def random_rows(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Each row from either image at random."""
    count, _, height, _ = pairs.images.shape
    return by_rows(pairs, pairs.draws.uniform(count, height) < pairs.lam()[:, None])


@mix("random-columns")
def random_columns(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Each column from either image at random."""
    count, _, _, width = pairs.images.shape
    return by_columns(pairs, pairs.draws.uniform(count, width) < pairs.lam()[:, None])


@mix("random-pixels")
def random_pixels(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Each pixel from either image at random."""
    return by_chance(pairs, pairs.lam())


@mix("random-elements")
def random_elements(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Each channel of each pixel from either image at random."""
    return by_chance(pairs, pairs.lam(), elements=True)
