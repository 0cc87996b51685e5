"""Is the converted network still the original where it must be?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from surgeon.layers.running import evaluating, flatten
from surgeon.layers.surgical import SurgicalNorm

TOLERANCE = 1e-5
"""Largest relative difference at an identity setting; real deviations are either 0 or rounding."""


def relative_difference(first: Any, second: Any) -> float:
    """Largest absolute difference relative to the largest value, over all tensors of two outputs."""
    ours, theirs = list(flatten(first)), list(flatten(second))
    if [t.shape for t in ours] != [t.shape for t in theirs]:
        return float("inf")
    return max((_difference(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)


def _difference(ours: Tensor, theirs: Tensor) -> float:
    if ours.numel() == 0 or torch.equal(ours, theirs):
        return 0.0
    a, b = ours.double(), theirs.double()
    gap = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())  # a broken network stays broken alike
    if not torch.isfinite(gap).all():
        return float("inf")
    scale = b[torch.isfinite(b)].abs().max().item() if torch.isfinite(b).any() else 1.0
    return gap.max().item() / (scale or 1.0)


def layer_difference(original: nn.Module, norm: SurgicalNorm) -> float:
    """Difference of two layers in evaluation on a random input of the layer's kind; no hook of theirs is called."""
    reference = norm.weight if norm.weight is not None else norm.running_mean
    if reference is not None and reference.device.type == "meta":
        return 0.0
    dims = {"BatchNorm1d": 1, "BatchNorm3d": 3}.get(type(original).__name__, 2)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((2, norm.num_features, *[3] * dims), generator=generator)
    if reference is not None:
        x = x.to(reference.device, reference.dtype)
    with evaluating(original), evaluating(norm), torch.no_grad():
        return relative_difference(norm.forward(x.clone()), original.forward(x.clone()))
