"""MoEx, the exchange of feature moments: Li et al., "On Feature Normalization and Data Augmentation", CVPR 2021.

Each example is normalised by its own moments and takes those of its partner:
`y = (x - mean) / std * std[partner] + mean[partner]`. The kinds differ in what one moment is taken
over: see surgeon/layers/moments.py.

As in the authors' code (the paper prints the biased form) the variance is unbiased, with eps inside
the root, in float32 whatever the dtype of the features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from surgeon.layers.moments import Moments, grouped_moments


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
    values, mean, std, valid = grouped_moments(x, kind, groups, channels_per_group, positive_only, mask, eps)
    # As a scale and a shift, which rounds as the authors' code does (where a deviation nears sqrt(eps) it shows),
    # costs one product and one sum per feature, and leaves an example that is its own partner as it is.
    scale = std[permutation] / std
    y = (values * scale + (mean[permutation] - mean * scale)).flatten(1, 2).to(x.dtype)
    if valid is None:
        return y
    changed = valid if kind.over_positions else valid & valid[permutation]
    return torch.where(changed.squeeze(2), y, x)
