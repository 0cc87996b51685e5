"""MoEx, the exchange of feature moments: Li et al., "On Feature Normalization and Data Augmentation", CVPR 2021.

Each example is normalised by its own moments and takes those of its partner:
`y = (x - mean) / std * std[partner] + mean[partner]`. The kinds differ in what one moment is taken
over: see surgeon/layers/moments.py.

As in the authors' code (the paper prints the biased form) the variance is unbiased, with eps inside
the root, in float32 whatever the dtype of the features.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from surgeon.layers.moments import Moments, grouped_moments
from surgeon.layers.native.scaling import Over
from surgeon.layers.scaling import applies, scale_by_moments
from surgeon.layers.statistics import wide

_OVER: dict[Moments, Over] = {Moments.PONO: "channels", Moments.IN: "positions"}
"""The kinds whose gradients are computed by hand."""


def exchange_moments(
    x: Tensor,
    permutation: Tensor,
    kind: Moments | str,
    *,
    groups: int = 4,
    channels_per_group: int | None = None,
    positive_only: bool = False,
    mask: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Give example i the moments of example permutation[i]; the options are those of `moments`.

    Padding stays as it is. Where moments belong to one position (pono, gpono), so does a position
    that is padding in the partner: it has no moments to give.
    """
    if len(permutation) != len(x):
        raise ValueError(f"Expected a permutation of {len(x)} examples, got one of {len(permutation)}")
    kind = Moments(kind)
    over = _OVER.get(kind)
    if over and not positive_only and mask is None and applies(x, over):
        return scale_by_moments(wide(x), over, partial(_exchanged, permutation, eps)).to(x.dtype)
    values, mean, std, valid = grouped_moments(x, kind, groups, channels_per_group, positive_only, mask, eps)
    scale, shift = _scale_and_shift(permutation, mean, std)
    y = (values * scale + shift).flatten(1, 2).to(x.dtype)
    if valid is None:
        return y
    changed = valid if kind.over_positions else valid & valid[permutation]
    return torch.where(changed.squeeze(2), y, x)


def _exchanged(permutation: Tensor, eps: float, mean: Tensor, var: Tensor, **_: bool) -> list[Tensor]:
    """The rule of an exchange, for `scale_by_moments`."""
    return _scale_and_shift(permutation, mean, (var + eps).sqrt())


def _scale_and_shift(permutation: Tensor, mean: Tensor, std: Tensor) -> list[Tensor]:
    """An exchange as a scale and a shift.

    So it rounds as the authors' code does (where a deviation nears sqrt(eps) it shows), costs one product
    and one sum per feature, and leaves an example that is its own partner as it is.
    """
    scale = std.index_select(0, permutation) / std
    return [scale, mean.index_select(0, permutation) - mean * scale]
