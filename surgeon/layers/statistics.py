"""The arithmetic of batch statistics, free of layers and options.

Statistics are always carried as (mean, biased variance). Two sets of statistics are mixed by
moments (the mixture's E[x] and E[x^2]) in the form that does not cancel: see `mix`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from surgeon.core.private import suggest_memory_format
from surgeon.layers import kernels, native
from surgeon.layers.differentiation import differentiable_gradients


class Statistics(NamedTuple):
    """Mean and biased variance, of the same shape."""

    mean: Tensor
    var: Tensor


def mix(base: Statistics, other: Statistics, share: Tensor | float) -> Statistics:
    """Moments of a mixture that takes `share` of `other` and the rest of `base`."""
    difference = other.mean - base.mean
    mean = base.mean + share * difference
    var = share * other.var + (1 - share) * base.var + share * (1 - share) * difference.square()
    return Statistics(mean, var)


def pool(parts: Statistics, sizes: Tensor) -> Statistics:
    """Moments of the union of parts stacked along dimension 0, with the given sizes."""
    sizes = sizes.to(parts.mean.dtype)
    weights = (sizes / sizes.sum()).reshape(-1, *[1] * (parts.mean.dim() - 1))
    mean = (weights * parts.mean).sum(0)
    var = (weights * (parts.var + (parts.mean - mean).square())).sum(0)
    return Statistics(mean, var)


def share_within_groups(channels: Statistics, groups: int) -> Statistics:
    """Give every channel of (..., C) statistics the moments of its channel group."""
    if groups == channels.mean.shape[-1]:
        return channels
    mean, var = (t.reshape(*t.shape[:-1], groups, t.shape[-1] // groups) for t in channels)
    group_mean = mean.mean(-1, keepdim=True)
    group_var = (var + (mean - group_mean).square()).mean(-1, keepdim=True)
    return Statistics(group_mean.expand_as(mean).flatten(-2), group_var.expand_as(var).flatten(-2))


def wide(x: Tensor) -> Tensor:
    """At least float32: sums of half-precision numbers are not taken in half precision."""
    return x.float() if x.dtype.itemsize < 4 else x


def example_statistics(x: Tensor) -> Statistics:
    """Moments of each example's channels over its positions, as (N, C)."""
    if x.dim() == 2:
        return Statistics(x, torch.zeros_like(x))
    var, mean = torch.var_mean(x, dim=tuple(range(2, x.dim())), correction=0)
    return Statistics(mean, var)


def affine(x: Tensor, stats: Statistics, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Normalise (N, C, ...) with (N, C) or (C,) statistics, then scale and shift."""
    mean = per_channel(stats.mean, x)
    scale = torch.rsqrt(stats.var + eps)
    scale = per_channel(scale if weight is None else scale * weight, x)
    centred = x - mean
    return centred * scale if bias is None else torch.addcmul(per_channel(bias, x), centred, scale)


def per_channel(t: Tensor, x: Tensor) -> Tensor:
    """Shape (C,) or (N, C) for broadcasting against (N, C, ...)."""
    return t.reshape(-1, x.shape[1], *[1] * (x.dim() - 2))


def example_weighted(
    x: Tensor,
    running: Statistics,
    weight: Tensor | None,
    bias: Tensor | None,
    alpha: Tensor,
    eps: float,
    channel_groups: int,
) -> Tensor:
    """Normalise each example with running statistics into which its own are mixed with weight alpha."""
    base = share_within_groups(Statistics(wide(running.mean), wide(running.var)), channel_groups)
    own = share_within_groups(example_statistics(wide(x)), channel_groups)
    # An infinite value makes its example's moments infinite. At alpha = 0 they do not count, but 0 * inf is NaN.
    ignored = (alpha == 0) & ~(own.var + (own.mean - base.mean).square()).isfinite()
    own = Statistics(*(torch.where(ignored, b, o) for b, o in zip(base, own, strict=True)))
    return affine(wide(x), mix(base, own, alpha), weight, bias, eps).to(x.dtype)


def group_bounds(examples: int, size: int, values: int) -> list[tuple[int, int]]:
    """Cut a batch into contiguous groups of `size`; the last may be smaller.

    A remainder of one example with a single value has no variance: it joins its neighbour.
    """
    size = min(size, examples)
    if size * values == 1:
        raise ValueError("Expected more than 1 value per channel and group when training: one has no variance")
    starts = list(range(0, examples, size))
    if examples - starts[-1] == 1 and values == 1 and len(starts) > 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], examples], strict=True))


class GroupwiseBatchNorm(torch.autograd.Function):
    """BatchNorm over each group of examples on its own, by our kernel or group by group by torch's.

    Either way every group is written straight into its place in one output. Takes what is contiguous or channels-last
    alone: from other layouts, torch's kernel does not write the statistics into the place that it is given.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        bounds: list[tuple[int, int]],
        eps: float,
        channel_groups: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        done = kernels.ghost_forward(x, weight, bias, bounds, eps, channel_groups)
        if done is None:
            whole = channel_groups == x.shape[1]
            done = (
                _forward_by_group(x, weight, bias, bounds, eps)
                if whole
                else _forward_by_torch(x, weight, bias, bounds, eps, channel_groups)
            )
        ctx.save_for_backward(x, weight, bias, done.centre, done.inverse)
        ctx.bounds, ctx.eps, ctx.channel_groups = bounds, eps, channel_groups
        ctx.mark_non_differentiable(done.mean, done.var)
        ctx.set_materialize_grads(False)  # no zeros are made for the moments
        return done.y, done.mean, done.var

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Tensor) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        x, weight, bias, mean, inverse_std = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:3])
        gradients: tuple[Tensor | None, ...] | None = None
        twice = torch.is_grad_enabled()
        if not twice:
            gradients = kernels.ghost_backward(grad, x, weight, ctx.bounds, mean, inverse_std)
        if gradients is None and (twice or ctx.channel_groups != x.shape[1]):
            gradients = differentiable_gradients(
                lambda x, weight, bias: _by_torch(x, weight, bias, ctx.bounds, ctx.eps, ctx.channel_groups)[0],
                (x, weight, bias),
                wanted,
                grad,
            )
            gradients = gradients if twice else tuple(None if g is None else g.detach() for g in gradients)
        if gradients is None:
            gradients = _backward_by_group(grad, x, weight, ctx.bounds, mean, inverse_std, ctx.eps, wanted)
        return (*(g if w else None for g, w in zip(gradients, wanted, strict=True)), None, None, None)


def _by_torch(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    bounds: list[tuple[int, int]],
    eps: float,
    channel_groups: int,
) -> tuple[Tensor, Statistics]:
    """The same by torch's operations alone."""
    if channel_groups == x.shape[1]:
        y = torch.cat([F.batch_norm(x[start:stop], None, None, weight, bias, True, 0.0, eps) for start, stop in bounds])
        moments = [
            torch.var_mean(wide(x[start:stop].detach()), dim=_all_but_channels(x), correction=0)
            for start, stop in bounds
        ]
        return y, Statistics(torch.stack([m for _, m in moments]), torch.stack([v for v, _ in moments]))
    examples = example_statistics(wide(x))
    pooled = [
        pool(Statistics(*(t[start:stop] for t in examples)), torch.ones(stop - start, device=x.device))
        for start, stop in bounds
    ]
    groups = Statistics(torch.stack([p.mean for p in pooled]), torch.stack([p.var for p in pooled]))
    sizes = torch.tensor([stop - start for start, stop in bounds], device=x.device)
    shared = share_within_groups(groups, channel_groups)
    own = Statistics(*(t.repeat_interleave(sizes, dim=0, output_size=len(x)) for t in shared))
    return affine(wide(x), own, weight, bias, eps).to(x.dtype), Statistics(*(t.detach() for t in groups))


def _forward_by_group(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, bounds: list[tuple[int, int]], eps: float
) -> native.Groups:
    y = torch.empty_like(x)
    mean = x.new_empty((len(bounds), x.shape[1]), dtype=x.dtype if weight is None else weight.dtype)
    inverse_std = torch.empty_like(mean)
    for group, (start, stop) in enumerate(bounds):
        torch.ops.aten.native_batch_norm.out(
            x[start:stop], weight, bias, None, None, True, 0.0, eps,
            out=y[start:stop], save_mean=mean[group], save_invstd=inverse_std[group],
        )  # fmt: skip
    var = (inverse_std.pow(-2) - eps).clamp_(min=0)
    return native.Groups(y, mean, var, mean.clone(), inverse_std)


def _forward_by_torch(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    bounds: list[tuple[int, int]],
    eps: float,
    channel_groups: int,
) -> native.Groups:
    """For groups of channels, where the kernel that was expected to apply has failed."""
    y, groups = _by_torch(x, weight, bias, bounds, eps, channel_groups)
    centre, var = (t[:, :: x.shape[1] // channel_groups] for t in share_within_groups(groups, channel_groups))
    return native.Groups(y, *groups, centre, torch.rsqrt(var + eps))


def _backward_by_group(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bounds: list[tuple[int, int]],
    mean: Tensor,
    inverse_std: Tensor,
    eps: float,
    wanted: list[bool],
) -> tuple[Tensor | None, ...]:
    groups = [
        torch.ops.aten.native_batch_norm_backward(
            grad[start:stop], x[start:stop], weight, None, None, mean[group], inverse_std[group], True, eps, wanted
        )
        for group, (start, stop) in enumerate(bounds)
    ]
    grad_x, *of_parameters = zip(*groups, strict=True)
    return torch.cat(grad_x) if wanted[0] else None, *(
        torch.stack(parts).sum(0) if needed else None for parts, needed in zip(of_parameters, wanted[1:], strict=True)
    )


def normalise_groups(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    bounds: list[tuple[int, int]],
    eps: float,
    channel_groups: int | None = None,
) -> tuple[Tensor, Statistics]:
    """Normalise each group of examples, and of channels, by itself.

    Also returns the (G, C) statistics of the channels of each group of examples, in float32 or wider.
    """
    channel_groups = channel_groups or x.shape[1]
    by_torch = native.being_watched() or not native.ordinary(x, weight, bias)
    if channel_groups == x.shape[1]:
        if x.dtype.itemsize < 4:  # the kernels keep float32 statistics only beside float32 parameters
            ones, zeros = (torch.full((x.shape[1],), value, dtype=torch.float32, device=x.device) for value in (1, 0))
            weight, bias = ones if weight is None else wide(weight), zeros if bias is None else wide(bias)
    else:
        by_torch = by_torch or not kernels.takes_groups(_dense(x), *_contiguous(weight, bias))
    if by_torch:
        return _by_torch(x, weight, bias, bounds, eps, channel_groups)
    y, *groups = GroupwiseBatchNorm.apply(_dense(x), *_contiguous(weight, bias), bounds, eps, channel_groups)
    return y, Statistics(*groups)


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    return [t if t is None or t.is_contiguous() else t.contiguous() for t in tensors]


def _dense(x: Tensor) -> Tensor:
    """In the memory format in which torch's BatchNorm answers: contiguous, or channels-last."""
    return x if native.is_dense(x) else x.contiguous(memory_format=suggest_memory_format(x))


def _all_but_channels(x: Tensor) -> tuple[int, ...]:
    return tuple(d for d in range(x.dim()) if d != 1)
