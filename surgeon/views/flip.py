"""The image and its mirror image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from surgeon.views.base import Generate, ViewConfig, flipped, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.origin import Preprocessing


def _both(batch: Tensor) -> Iterator[Tensor]:
    yield batch
    yield flipped(batch)


def _undo(masks: Tensor, number: int, size: tuple[int, ...]) -> Tensor:  # noqa: ARG001
    return flipped(masks) if number else masks


@register("flip", count=2, undo=_undo)
def flip(config: ViewConfig, preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:  # noqa: ARG001
    """The image and its mirror image."""
    return preprocessing, _both
