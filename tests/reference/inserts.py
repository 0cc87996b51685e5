"""What inserts do to features: moment exchange, CrossNorm, SelfNorm. Variances are unbiased."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Box = tuple[int, int, int, int]
EPS = 1e-5
SELFNORM_EPS = 1e-12


def restyled(x: Tensor, dims: tuple[int, ...], order: Tensor, axis: int, style: Tensor | None = None) -> Tensor:
    """Each takes the mean and deviation of another, or of the same part of another one's `style`."""

    def moments(values: Tensor) -> tuple[Tensor, Tensor]:
        return values.mean(dims, keepdim=True), (values.var(dims, correction=1, keepdim=True) + EPS).sqrt()

    mean, std = moments(x)
    other_mean, other_std = (t.index_select(axis, order) for t in moments(x if style is None else style))
    return (x - mean) / std * other_std + other_mean


def moex(x: Tensor, permutation: Tensor, kind: str, groups: int = 4, positive_only: bool = False) -> Tensor:
    """Moments over channels (pono), positions (in), both (ln), or groups of channels (gn with positions, gpono)."""
    grouped = x.reshape(len(x), groups, -1, *x.shape[2:]) if kind.startswith("g") else x[:, None]
    space = tuple(range(3, grouped.dim()))
    dims = {"pono": (2,), "in": space, "ln": (2, *space), "gn": (2, *space), "gpono": (2,)}[kind]
    if not positive_only:
        return restyled(grouped, dims, permutation, 0).reshape(x.shape)
    positive = (grouped > 0).to(x.dtype)
    count = positive.sum(dims, keepdim=True).clamp(min=1)
    mean = (grouped * positive).sum(dims, keepdim=True) / count
    std = (((grouped - mean) ** 2 * positive).sum(dims, keepdim=True) / count + EPS).sqrt()
    return ((grouped - mean) / std * std[permutation] + mean[permutation]).reshape(x.shape)


def crossnorm(x: Tensor, permutation: Tensor, style: Box | None = None, content: Box | None = None) -> Tensor:
    """Between instances: the content box takes the channel-wise style of the partner's style box."""
    space = tuple(range(2, x.dim()))
    y = x.clone()
    inside = _inside(x, content)
    y[inside] = restyled(x[inside], space, permutation, 0, x[_inside(x, style)])
    return y


def crossnorm_of_channels(x: Tensor, order: Tensor) -> Tensor:
    """Between the channels of one instance."""
    return restyled(x, tuple(range(2, x.dim())), order, 1)


def _inside(x: Tensor, box: Box | None) -> tuple[slice, ...]:
    if box is None:
        return (slice(None),) * x.dim()
    top, left, bottom, right = box
    return slice(None), slice(None), slice(top, bottom), slice(left, right)


def selfnorm(layer: Any, x: Tensor) -> Tensor:
    """`x*g + mean*(f - g)`, one-sided `x*g`; g and f from a depthwise convolution over [mean, std], norm and sigmoid.

    surgeon's own form doubles the gates, so that a fresh unit, whose convolution is 0, is the identity.
    """
    space = tuple(range(2, x.dim()))
    mean, std = x.mean(space), (x.var(space, correction=1) + SELFNORM_EPS).sqrt()
    scale = 1 if layer.form == "published" else 2

    def gate(side: str) -> Tensor:
        weight, norm = getattr(layer, f"{side}_fc").weight, getattr(layer, f"{side}_bn")
        values = mean * weight[:, 0, 0] + std * weight[:, 0, 1]
        if layer.training:
            batch_mean, batch_var = values.mean(0), values.var(0, correction=0)
            with torch.no_grad():
                unbiased = batch_var * len(x) / (len(x) - 1)
                norm.running_mean += norm.momentum * (batch_mean - norm.running_mean)
                norm.running_var += norm.momentum * (unbiased - norm.running_var)
                norm.num_batches_tracked += 1
        else:
            batch_mean, batch_var = norm.running_mean, norm.running_var
        values = (values - batch_mean) / (batch_var + norm.eps).sqrt() * norm.weight + norm.bias
        return (scale / (1 + (-values).exp())).reshape(*values.shape, *[1] * len(space))

    g = gate("g")
    if not hasattr(layer, "f_fc"):
        return x * g
    return x * g + mean.reshape(g.shape) * (gate("f") - g)


INSERTS = {"moex": moex, "crossnorm": crossnorm, "selfnorm": selfnorm}
"""By the name of the registered insert."""
