"""The kernels of batch mixing: images (N, C, H, W) and, for each, the index of its partner.

As all kernels, each answers None where it does not apply. What they compute: surgeon/augment/blending.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from surgeon.native import _contiguous, _library, _plain, being_traced


def lines(x: Tensor, partner: Tensor, weights: Tensor, rows: Tensor) -> Tensor | None:
    """Two kinds of row, with weights (N, 2, W); rows (N, H) says which is where."""
    shape, library = _shape(x, partner, weights, rows), _library()
    if shape is None or library is None or not _plain(weights):
        return None
    y, spread = torch.empty_like(x), x.new_empty(weights.shape[0], 2, shape[3] * shape[4])
    library.mix_lines(
        x.data_ptr(), y.data_ptr(), partner.data_ptr(), *shape,
        weights.data_ptr(), rows.data_ptr(), spread.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return y


def pixels(x: Tensor, partner: Tensor, weights: Tensor) -> Tensor | None:
    """A weight (N, H, W) for each pixel."""
    shape, library = _shape(x, partner, weights), _library()
    if shape is None or library is None or not _plain(weights):
        return None
    y, spread = torch.empty_like(x), x.new_empty(weights.shape[0], shape[3] * shape[4])
    library.mix_pixels(
        x.data_ptr(), y.data_ptr(), partner.data_ptr(), *shape,
        weights.data_ptr(), spread.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return y


def boxes(x: Tensor, partner: Tensor, places: Tensor) -> Tensor | None:
    """Places (N, 6): top, left, bottom and right of what comes from the partner, and the top and left there."""
    shape, library = _shape(x, partner, places), _library()
    if shape is None or library is None:
        return None
    y = torch.empty_like(x)
    library.mix_boxes(
        x.data_ptr(), y.data_ptr(), partner.data_ptr(), *shape, places.data_ptr(), torch.get_num_threads()
    )
    return y


def chances(x: Tensor, partner: Tensor, drawn: Tensor, limits: Tensor) -> tuple[Tensor, Tensor] | None:
    """Bytes for each pixel (N, H, W) or each element in memory (N, C * H * W); and how many are not above the limit."""
    shape, library = _shape(x, partner, drawn, limits), _library()
    if shape is None or library is None:
        return None
    if drawn.dim() == 2:
        shape = shape[0], 1, 1, drawn.shape[1], 1
    y, count, spread = torch.empty_like(x), partner.new_empty(shape[0]), drawn.new_empty(shape[0], shape[3] * shape[4])
    library.mix_chances(
        x.data_ptr(), y.data_ptr(), partner.data_ptr(), *shape,
        drawn.data_ptr(), limits.data_ptr(), count.data_ptr(), spread.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return y, count


def row_and_column_sums(x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Sums and sums of squares over each row (2, N, H) and over each column (2, N, W)."""
    shape, library = _shape(x), _library()
    if shape is None or library is None:
        return None
    examples, _, height, width, items = shape
    rows, columns = x.new_zeros(examples, 2, height), x.new_zeros(examples, 2, width, items)
    library.row_and_column_sums(x.data_ptr(), *shape, rows.data_ptr(), columns.data_ptr(), torch.get_num_threads())
    return rows.transpose(0, 1), columns.sum(3).transpose(0, 1)


def _shape(x: Tensor, *others: Tensor) -> tuple[int, int, int, int, int] | None:
    """Examples, planes, height, width and floats per pixel, as they are in memory; None if a kernel cannot be used."""
    if being_traced() or x.numel() == 0 or not _plain(x) or not _contiguous(*others):
        return None
    examples, channels, height, width = x.shape
    if x.is_contiguous():
        return examples, channels, height, width, 1
    if x.is_contiguous(memory_format=torch.channels_last):
        return examples, 1, height, width, channels
    return None
