"""Pixels of each example and of its partner in one image, with a weight for each pixel."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.augment.mixing import Pairs


def blend(pairs: Pairs, weights: Tensor, rows: Tensor | None = None, shift: Tensor | None = None) -> Tensor:
    """`w * own + (1 - w) * partner`, with weights in one of three forms.

    (N, H, W) has one for each pixel, and (N, C, H, W) one for each element. With `rows` (N, H), weights
    (N, 2, W) are the two kinds of row that there are, and `rows` says which is where. With `shift` (N, 2)
    too, what comes from the partner was that many pixels further down and right there; the weights must
    then be 1 wherever there is no such pixel.
    """
    import torch

    from surgeon import native

    images = pairs.images
    if weights.dim() == 3:
        made = native.mix(images, pairs.partner, weights, rows, shift)
        if made is not None:
            return made
        if rows is not None:
            weights = torch.where(rows[:, :, None], weights[:, 1:], weights[:, :1])
        weights = weights[:, None]
    others = taken(images, pairs.partner) if shift is None else _taken_from_elsewhere(pairs, shift)
    if not images.is_floating_point():
        return torch.where(weights > 0.5, images, others)
    return torch.lerp(others, images, weights.to(images.dtype))


def by_examples(pairs: Pairs, own: Tensor) -> Tensor:
    """One weight (N,) for all pixels of an example."""
    count, _, height, width = pairs.images.shape
    lines = own.float()[:, None, None].expand(count, 2, width).contiguous()
    return blend(pairs, lines, _alike(own, count, height))


def by_rows(pairs: Pairs, own: Tensor, shift: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Own rows (N, H) of each example, the others from its partner; and the share that is its own."""
    count, _, _, width = pairs.images.shape
    shares = own.float()
    lines = shares.new_zeros(count, 2, width)
    lines[:, 1] = 1
    return blend(pairs, lines, own, shift), shares.mean(1)


def by_columns(pairs: Pairs, own: Tensor, shift: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Own columns (N, W) of each example, the others from its partner; and the share that is its own."""
    count, _, height, width = pairs.images.shape
    shares = own.float()
    lines = shares[:, None].expand(count, 2, width).contiguous()
    return blend(pairs, lines, _alike(own, count, height), shift), shares.mean(1)


def _alike(like: Tensor, count: int, height: int) -> Tensor:
    """Rows (N, H) that are all of the same kind."""
    import torch

    return torch.zeros(count, height, dtype=torch.bool, device=like.device)


def by_cells(
    pairs: Pairs, rows: Tensor, columns: Tensor, cells: Tensor, shift: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Rows and columns of two kinds each: `cells` (N or 1, 2, 2) has the own weight for each kind of pixel."""
    import torch

    lines = torch.where(columns[:, None], cells[..., 1:], cells[..., :1])
    shares = lines.mean(2)
    share = torch.lerp(shares[:, 0], shares[:, 1], rows.float().mean(1))
    return blend(pairs, lines, rows, shift), share


def taken(images: Tensor, partner: Tensor) -> Tensor:
    """The partners' images, in the memory format of the images."""
    import torch

    if images.is_contiguous(memory_format=torch.channels_last):
        return images.permute(0, 2, 3, 1).index_select(0, partner).permute(0, 3, 1, 2)
    return images.index_select(0, partner)


def _taken_from_elsewhere(pairs: Pairs, shift: Tensor) -> Tensor:
    import torch

    height, width = pairs.images.shape[2:]
    down = (torch.arange(height, device=shift.device) + shift[:, :1]) % height
    right = (torch.arange(width, device=shift.device) + shift[:, 1:]) % width
    pixels = pairs.images.permute(0, 2, 3, 1)[pairs.partner[:, None, None], down[:, :, None], right[:, None]]
    others = torch.empty_like(pairs.images)
    return others.copy_(pixels.permute(0, 3, 1, 2))
