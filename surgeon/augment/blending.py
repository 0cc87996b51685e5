"""Pixels of each example and of its partner in one image.

Each function has a kernel for the CPU and the same in torch for everything else: rows that are copied and
boxes that are not read make the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.augment.mixing import Pairs


def by_examples(pairs: Pairs, own: Tensor) -> Tensor:
    """`w * own + (1 - w) * partner` with one weight (N,) for all pixels of an example."""
    return by_factors(pairs, own, 1 - own, own.new_zeros(len(own)))


def by_factors(pairs: Pairs, first: Tensor, second: Tensor, offset: Tensor) -> Tensor:
    """`first * own + second * partner - offset`, with one number (N,) for all pixels of an example."""
    from surgeon.layers.native import mixing

    images, partner = pairs.images, pairs.partner
    made = mixing.evenly(images, partner, first, second, offset)
    if made is not None:
        return made
    made = images * _column(first, images) + _taken(images, partner) * _column(second, images)
    return made.sub_(_column(offset, images))


def by_noise(pairs: Pairs, own: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The same with noise (N, H, W) on the weight, which stays between 0 and 1; and the mean weight (N,)."""
    from surgeon.layers.native import mixing

    made = mixing.noisily(pairs.images, pairs.partner, own, noise)
    if made is not None:
        return made
    weights = (noise + own[:, None, None]).clamp_(0, 1)
    return _weighted(pairs, weights[:, None]), weights.mean((1, 2))


def by_rows(pairs: Pairs, own: Tensor) -> tuple[Tensor, Tensor]:
    """Own rows (N, H) of each example, the others from its partner; and the share that is its own."""
    shares = own.float()
    lines = shares.new_zeros(len(own), 2, pairs.images.shape[3])
    lines[:, 1] = 1
    return _by_lines(pairs, own, lines), shares.mean(1)


def by_columns(pairs: Pairs, own: Tensor) -> tuple[Tensor, Tensor]:
    """Own columns (N, W) of each example, the others from its partner; and the share that is its own."""
    count, _, height, width = pairs.images.shape
    shares = own.float()
    lines = shares[:, None].expand(count, 2, width).contiguous()
    return _by_lines(pairs, own.new_zeros(count, height), lines), shares.mean(1)


def by_cells(pairs: Pairs, rows: Tensor, columns: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of two kinds each: `cells` (N or 1, 2, 2) has the own weight for each kind of pixel."""
    import torch

    lines = _lines(columns, cells)
    shares = lines.mean(2)
    return _by_lines(pairs, rows, lines), torch.lerp(shares[:, 0], shares[:, 1], rows.float().mean(1))


def by_boxes(pairs: Pairs, start: Tensor, stop: Tensor, source: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """From `start` (N, 2) to `stop`, both (row, column), the partner's pixels that start at `source` there.

    Without a source, those of the same place.
    """
    import torch

    from surgeon.layers.native import mixing

    source = start if source is None else source
    made = mixing.boxes(pairs.images, pairs.partner, start, stop, source)
    if made is not None:
        return made
    height, width = pairs.images.shape[2:]
    share = (stop - start).prod(1).div_(-height * width).add_(1)
    places = [torch.arange(size, device=start.device) for size in (height, width)]
    rows, columns = ((at >= start[:, i : i + 1]) & (at < stop[:, i : i + 1]) for i, at in enumerate(places))
    own = ~(rows[:, :, None] & columns[:, None])
    shift = (source - start).long()
    down, right = ((at + shift[:, i : i + 1]) % len(at) for i, at in enumerate(places))
    pixels = pairs.images.permute(0, 2, 3, 1)[pairs.partner[:, None, None], down[:, :, None], right[:, None]]
    others = torch.empty_like(pairs.images).copy_(pixels.permute(0, 3, 1, 2))
    return _weighted(pairs, own[:, None], others), share


def by_chance(pairs: Pairs, lam: Tensor, *, elements: bool = False) -> tuple[Tensor, Tensor]:
    """Each pixel, or each element of it, its own with probability lam (N,); and the share that is."""
    from surgeon.layers.native import mixing

    count, channels, height, width = pairs.images.shape
    shape = (channels * height * width,) if elements else (height, width)
    drawn, limits = pairs.draws.bytes(count, *shape), pairs.draws.limits(lam)
    made = mixing.chances(pairs.images, pairs.partner, drawn, limits)
    if made is not None:
        return made[0], made[1] / drawn[0].numel()
    own = drawn <= limits.view(-1, *[1] * len(shape))
    share = own.flatten(1).float().mean(1)
    if not elements:
        return _weighted(pairs, own[:, None]), share
    if _channels_last(pairs.images):  # elements are drawn in the order in which they are in memory
        return _weighted(pairs, own.view(count, height, width, channels).permute(0, 3, 1, 2)), share
    return _weighted(pairs, own.view(pairs.images.shape)), share


def _lines(columns: Tensor, cells: Tensor) -> Tensor:
    """Lines (N, 2, W) with the own weight of each column, by its kind (N, W)."""
    import torch

    return torch.where(columns[:, None], cells[..., 1:], cells[..., :1])


def _column(values: Tensor, images: Tensor) -> Tensor:
    """Values (N,), one for each image, that broadcast over it."""
    return values.to(images.dtype)[:, None, None, None]


def _by_lines(pairs: Pairs, rows: Tensor, lines: Tensor) -> Tensor:
    """Two kinds of row, with own weights `lines` (N, 2, W); `rows` (N, H) says which is where."""
    import torch

    from surgeon.layers.native import mixing

    made = mixing.lines(pairs.images, pairs.partner, lines, rows)
    if made is not None:
        return made
    return _weighted(pairs, torch.where(rows[:, :, None], lines[:, 1:], lines[:, :1])[:, None])


def _weighted(pairs: Pairs, own: Tensor, others: Tensor | None = None) -> Tensor:
    """Weights or truth values that broadcast to the images."""
    import torch

    images = pairs.images
    if others is None:
        others = _taken(images, pairs.partner)
    if images.is_floating_point():
        return torch.lerp(others, images, own.to(images.dtype))
    return torch.where(own > 0.5, images, others)


def _taken(images: Tensor, partner: Tensor) -> Tensor:
    """The partners' images, in the memory format of the images."""
    if _channels_last(images):
        return images.permute(0, 2, 3, 1).index_select(0, partner).permute(0, 3, 1, 2)
    return images.index_select(0, partner)


def _channels_last(images: Tensor) -> bool:
    import torch

    return images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
