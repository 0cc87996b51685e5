"""Mixes that put parts of both images side by side, each part where it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.blending import by_cells, by_columns, by_rows
from surgeon.augment.mixing import Pairs, ShareConfig, mix

if TYPE_CHECKING:
    from torch import Tensor


def first(count: Tensor, size: int) -> Tensor:
    """Truth values (N, size): true for the first `count` (N,) of each example."""
    import torch

    return torch.arange(size, device=count.device) < count[:, None]


def drawn_part(pairs: Pairs, size: int) -> Tensor:
    """How many (N,) of the lines of an image, a drawn share of all; whole floats."""
    return (pairs.lam() * size).round_()


def top(pairs: Pairs) -> Tensor:
    """Truth values (N, H): the upper rows, a drawn share of all."""
    height = pairs.images.shape[2]
    return first(drawn_part(pairs, height), height)


def left(pairs: Pairs) -> Tensor:
    """Truth values (N, W): the columns on the left, a drawn share of all."""
    width = pairs.images.shape[3]
    return first(drawn_part(pairs, width), width)


@mix("vertical-concat")
def vertical_concat(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """The upper part of the image above the lower part of the partner."""
    return by_rows(pairs, top(pairs))


@mix("horizontal-concat")
def horizontal_concat(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """The left part of the image beside the right part of the partner."""
    return by_columns(pairs, left(pairs))


@mix("mixed-concat")
def mixed_concat(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Cut into four parts: upper left and lower right are the image's own, the other two its partner's."""
    import torch

    diagonal = torch.eye(2, device=pairs.images.device)[None]
    return by_cells(pairs, top(pairs), left(pairs), diagonal)


@mix("random-2x2")
def random_2x2(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Cut across and down within the middle half: each of the four parts from either image at random.

    Each part is its own with probability lam, which is drawn from Beta(alpha, alpha).
    """
    count, _, height, width = pairs.images.shape
    across, down = ((0.25 + 0.5 * pairs.draws.uniform(count)) * size for size in (height, width))
    cells = pairs.draws.uniform(count, 2, 2) < pairs.lam()[:, None, None]
    return by_cells(pairs, first(across.round(), height), first(down.round(), width), cells.float())
