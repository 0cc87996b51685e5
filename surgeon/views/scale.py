"""The image at three scales, for networks that take images of any size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from surgeon.views.base import Generate, ViewConfig, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.models.origin import Preprocessing

# 192, 224 and 256 for the usual 224: multiples of the usual stride of 32.
SCALES = (6 / 7, 1.0, 8 / 7)


def _scaled(batch: Tensor) -> Iterator[Tensor]:
    from torch.nn.functional import interpolate

    height, width = batch.shape[-2:]
    for scale in SCALES:
        size = [round(height * scale), round(width * scale)]
        same = size == [height, width]
        yield batch if same else interpolate(batch, size, mode="bilinear", antialias=True, align_corners=False)


def _undo(masks: Tensor, number: int, size: tuple[int, ...]) -> Tensor:  # noqa: ARG001
    from torch.nn.functional import interpolate

    same = tuple(masks.shape[-2:]) == size
    return masks if same else interpolate(masks, list(size), mode="bilinear", align_corners=False)


@register("multi-scale", count=len(SCALES), undo=_undo)
def multi_scale(config: ViewConfig, preprocessing: Preprocessing) -> tuple[Preprocessing, Generate]:  # noqa: ARG001
    """The image at 6/7, 1 and 8/7 of its size; not for networks of a fixed input size."""
    return preprocessing, _scaled
