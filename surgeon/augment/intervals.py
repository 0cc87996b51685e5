"""Mixes that replace an interval of rows or of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.blending import by_boxes
from surgeon.augment.mixing import Pairs, ShareConfig, mix

if TYPE_CHECKING:
    from torch import Tensor


@mix("random-row-interval")
def random_row_interval(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """An interval of rows is replaced by one from anywhere in the partner.

    How many is drawn, so that the own share follows Beta(alpha, alpha); where it starts, in either
    image, is uniform among the places where it fits.
    """
    return _replaced(pairs, 0)


@mix("random-column-interval")
def random_column_interval(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """An interval of columns is replaced by one from anywhere in the partner."""
    return _replaced(pairs, 1)


def _replaced(pairs: Pairs, axis: int) -> tuple[Tensor, Tensor]:
    """Along one axis from `start` on, along the other all."""
    count, _, *sizes = pairs.images.shape
    length = ((1 - pairs.lam()) * sizes[axis]).round()
    places = pairs.draws.below((sizes[axis] - length + 1)[:, None].expand(-1, 2))
    start, source = places.new_zeros(2, count, 2)
    start[:, axis], source[:, axis] = places[:, 0], places[:, 1]
    stop = places.new_tensor(sizes).repeat(count, 1)
    stop[:, axis] = start[:, axis] + length
    return by_boxes(pairs, start, stop, source)
