"""From a picture of any size to the part that the network sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.base import ImageOperation

if TYPE_CHECKING:
    from surgeon.models.sources import Preprocessing


def evaluation_geometry(preprocessing: Preprocessing) -> ImageOperation:
    """The same resizing and centre crop as in evaluation."""
    raise NotImplementedError
