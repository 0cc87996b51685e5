"""The kernels of batch mixing: images (N, C, H, W) and, for each, the index of its partner.

As all kernels, each answers None where it does not apply. What they compute: surgeon/augment/blending.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from surgeon.layers.native import _contiguous, _library, _plain, being_traced


def evenly(x: Tensor, partner: Tensor, first: Tensor, second: Tensor, offset: Tensor) -> Tensor | None:
    """`first` times the image plus `second` times the partner less `offset`, (N,) each."""
    shape, library = _shape(x, partner, first, second, offset), _library()
    if shape is None or library is None or not _plain(first, second, offset):
        return None
    y = torch.empty_like(x)
    library.mix_evenly(
        x.data_ptr(), y.data_ptr(), partner.data_ptr(), shape[0], x.numel() // shape[0],
        first.data_ptr(), second.data_ptr(), offset.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return y


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


def waves(x: Tensor, partner: Tensor, lam: Tensor, small: float) -> Tensor | None:
    """BC+ with share `lam` (N,)."""
    shape, library = _shape(x, partner, lam), _library()
    if shape is None or library is None or not _plain(lam):
        return None
    y, mean, deviation = torch.empty_like(x), torch.empty_like(lam), torch.empty_like(lam)
    library.mix_waves(
        x.data_ptr(), y.data_ptr(), partner.data_ptr(), shape[0], x.numel() // shape[0],
        lam.data_ptr(), small, mean.data_ptr(), deviation.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return y


def concats(x: Tensor, partner: Tensor, above: Tensor, beside: Tensor, lam: Tensor, small: float) -> Tensor | None:
    """BC+ with share `lam` (N,) of two concatenations, by how many rows and columns (N,) of each are its own."""
    shape, library = _shape(x, partner, above, beside, lam), _library()
    if shape is None or library is None or not _plain(above, beside, lam):
        return None
    examples, _, height, width, items = shape
    y, mean = torch.empty_like(x), x.new_empty(examples)
    rows, columns = x.new_zeros(examples, 2, height), x.new_zeros(examples, 2, width, items)
    library.mix_concats(
        x.data_ptr(), y.data_ptr(), partner.data_ptr(), *shape,
        above.data_ptr(), beside.data_ptr(), lam.data_ptr(), small,
        mean.data_ptr(), rows.data_ptr(), columns.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return y


def noisily(x: Tensor, partner: Tensor, weights: Tensor, noise: Tensor) -> tuple[Tensor, Tensor] | None:
    """A weight (N,) with noise (N, H, W), which is overwritten, from 0 to 1; and the mean of that (N,)."""
    shape, library = _shape(x, partner, weights, noise), _library()
    if shape is None or library is None or not _plain(weights, noise):
        return None
    y, share, spread = torch.empty_like(x), torch.empty_like(weights), x.new_empty(shape[0], shape[3] * shape[4])
    library.mix_noisily(
        x.data_ptr(), y.data_ptr(), partner.data_ptr(), *shape,
        weights.data_ptr(), noise.data_ptr(), share.data_ptr(), spread.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return y, share


def boxes(x: Tensor, partner: Tensor, start: Tensor, stop: Tensor, source: Tensor) -> tuple[Tensor, Tensor] | None:
    """The partner's pixels from `start` (N, 2) to `stop`, which start at `source` there; and the share (N,) kept."""
    shape, library = _shape(x, partner, start, stop, source), _library()
    if shape is None or library is None or not _plain(start, stop, source):
        return None
    y, share = torch.empty_like(x), x.new_empty(shape[0])
    library.mix_boxes(
        x.data_ptr(), y.data_ptr(), partner.data_ptr(), *shape,
        start.data_ptr(), stop.data_ptr(), source.data_ptr(), share.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return y, share


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


def placed_boxes(middles: Tensor, lengths: Tensor, height: int, width: int) -> tuple[Tensor, Tensor] | None:
    """Start and stop (N, 2) of boxes with these lengths, whose middles (N, 2) are drawn from 0 to 1 of each side."""
    library = _library()
    if library is None or being_traced() or not _plain(middles, lengths) or not _contiguous(middles, lengths):
        return None
    start, stop = torch.empty_like(lengths), torch.empty_like(lengths)
    library.place_boxes(
        middles.data_ptr(), lengths.data_ptr(), len(lengths), height, width, start.data_ptr(), stop.data_ptr()
    )
    return start, stop


def random_words(seed: Tensor, count: int) -> Tensor | None:
    """Whole numbers (count,) of 64 random bits, which follow from the seed, one such number."""
    library = _library()
    if library is None or being_traced() or not seed.is_cpu:
        return None
    words = seed.new_empty(count)
    library.random_words(seed.data_ptr(), words.data_ptr(), count, torch.get_num_threads())
    return words


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
