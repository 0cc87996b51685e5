"""CrossNorm: Tang et al., "CrossNorm and SelfNorm for Generalization under Distribution Shifts", ICCV 2021.

The mean and deviation of a channel are its style. An example takes those of another example's
channel (2-instance) or of another of its own channels (1-instance):
`y = (x - mean) / std * std_other + mean_other`, unbiased over the positions, eps 1e-5 in the root.

With a style box the style is that of a part of the partner; with a content box only that part of
the example is restyled, from the part's own moments, and the rest stays as it is.
"""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor

from surgeon.layers.moments import Moments, moments
from surgeon.layers.statistics import wide

Box = tuple[int, int, int, int]
"""h0, w0, h1, w1: rows h0 to h1 and columns w0 to w1, the ends not included."""

SMALLEST_SHARE = 0.1


def cross_normalise(
    x: Tensor, permutation: Tensor, style_box: Box | None = None, content_box: Box | None = None
) -> Tensor:
    """Give each channel of example i the style of the same channel of example permutation[i]."""
    if len(permutation) != len(x):
        raise ValueError(f"Expected a permutation of {len(x)} examples, got one of {len(permutation)}")
    content = x if content_box is None else _crop(x, content_box)
    own = moments(content, Moments.IN)
    style = own if style_box == content_box else moments(x if style_box is None else _crop(x, style_box), Moments.IN)
    mean, std = (t[permutation] for t in style)
    restyled = _restyle(content, own, mean, std)
    return restyled if content_box is None else _paste(restyled, x, content_box)


def cross_normalise_valid(x: Tensor, permutation: Tensor, mask: Tensor) -> Tensor:
    """The same over positions that are no padding, which stays as it is; `mask` (N, ...) is true there.

    An example with less than two other positions has no deviation: it neither gives a style nor takes one.
    """
    valid, mean, std, alone = _valid_moments(x, mask)
    restyled = _restyle(valid, (mean, std), mean[permutation], std[permutation])
    return torch.where(mask[:, None] | alone | alone[permutation], x, restyled)


def cross_normalise_channels(x: Tensor, channel_permutation: Tensor, mask: Tensor | None = None) -> Tensor:
    """Give channel c of each example the style of the example's own channel channel_permutation[c]."""
    if len(channel_permutation) != x.shape[1]:
        raise ValueError(f"Expected a permutation of {x.shape[1]} channels, got one of {len(channel_permutation)}")
    if mask is not None:
        valid, mean, std, alone = _valid_moments(x, mask)
        restyled = _restyle(valid, (mean, std), mean[:, channel_permutation], std[:, channel_permutation])
        return torch.where(mask[:, None] | alone, x, restyled)
    own = moments(x, Moments.IN)
    mean, std = (t[:, channel_permutation] for t in own)
    return _restyle(x, own, mean, std)


def _valid_moments(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features with zeros at padding, the moments of what is not, and which examples have less than two positions."""
    alone = (~mask).flatten(1).sum(1) < 2
    counted = mask & ~alone.view(-1, *[1] * (mask.dim() - 1))  # whatever these have, nobody uses their moments
    valid = x.masked_fill(mask[:, None], 0)
    mean, std = moments(valid, Moments.IN, mask=counted)
    return valid, mean, std, alone.view(-1, *[1] * (x.dim() - 1))


def random_box(height: int, width: int, beta: float, generator: torch.Generator | None = None) -> Box:
    """A box shaped like the image, anywhere within it, of an area whose share is drawn from Beta(beta, beta).

    Redrawn until it covers more than 10% and more than one position (one has no variance).
    """
    if height * width < 2 or beta <= 0:
        raise ValueError(f"No box of two positions or more from Beta({beta}) in {height} x {width}")
    # torch draws from Beta only without a generator: it seeds Python's, which has both.
    draw = Random(int(torch.randint(2**62, (), generator=generator)))
    while True:
        side = draw.betavariate(beta, beta) ** 0.5
        rows, columns = round(height * side), round(width * side)
        if rows * columns > max(1, SMALLEST_SHARE * height * width):
            top, left = draw.randint(0, height - rows), draw.randint(0, width - columns)
            return top, left, top + rows, left + columns


def _restyle(x: Tensor, own: tuple[Tensor, Tensor], mean: Tensor, std: Tensor) -> Tensor:
    own_mean, own_std = own
    return ((wide(x) - own_mean) * (std / own_std) + mean).to(x.dtype)


def _crop(x: Tensor, box: Box) -> Tensor:
    top, left, bottom, right = box
    if x.dim() != 4 or not (0 <= top < bottom <= x.shape[2] and 0 <= left < right <= x.shape[3]):
        raise ValueError(f"The box {tuple(box)} does not lie within features of shape {tuple(x.shape)}")
    return x[:, :, top:bottom, left:right]


def _paste(part: Tensor, x: Tensor, box: Box) -> Tensor:
    top, left, bottom, right = box
    y = x.clone()
    y[:, :, top:bottom, left:right] = part
    return y
