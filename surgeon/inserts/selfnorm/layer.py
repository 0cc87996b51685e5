"""SelfNorm: Tang et al., "CrossNorm and SelfNorm for Generalization under Distribution Shifts", ICCV 2021.

A channel's mean and deviation (unbiased, eps 1e-12 in the root) decide how much of its style is kept:
`y = x * g`, or two-sided `y = x * g + mean * (f - g)`, where each gate is a sigmoid of BatchNorm of a
learned combination of the two. Learnable, and active in evaluation.

The published unit starts at gates near 1/2: put into a trained network it halves what passes, and the
network's output moves by about half. Nor can it start near 1 and learn: a sigmoid that says 0.99 has 4%
of its slope left. The residual form has gates of the same shape around 1 instead,

    gate = 2 * sigmoid(a) = 1 + tanh(a / 2),   a = BatchNorm(combination) with its weight starting at 0,

so that a fresh unit is the identity, to the bit, in training and in evaluation, with the sigmoid at its
steepest. At the first step BatchNorm's weight and bias have gradients and the combination has none (it
is multiplied by that weight); after one step of the optimiser all have. Weight decay pulls towards the
identity rather than towards halving.

All but a scale and a shift happens on (N, C) numbers. A training batch passes one kernel, see fused.py here; elsewhere
autograd is given those numbers alone, see surgeon/layers/scaling.py.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Literal, get_args

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from surgeon.inserts.selfnorm.fused import Running, recalibrate_batch
from surgeon.layers import symbolic
from surgeon.layers.checks import check_channels
from surgeon.layers.native import scaling as kernels
from surgeon.layers.padding import Padding
from surgeon.layers.rescale import centre
from surgeon.layers.scaling import Rule, applies, scale_by_moments, scale_once_more
from surgeon.layers.statistics import Statistics, per_channel, wide

Form = Literal["residual", "published"]

EPS = 1e-12

# Feature extractors trace networks symbolically: each of these functions stays one step of theirs.


@torch.fx.wrap
def style(x: Tensor, channels: int) -> Statistics:
    """The (N, C) means and unbiased variances of each example's channels."""
    _check(x, channels)
    if (found := kernels.moments(wide(x), "positions")) is not None:
        return Statistics(*(t.flatten(1) for t in found))
    centred, means = centre(wide(x))
    squares = centred.square() if torch.is_grad_enabled() else centred.square_()
    return Statistics(means, squares.sum(_positions(x)) / (_count(x) - 1))


def valid_style(x: Tensor, mask: Tensor) -> Statistics:
    """The same over positions that are no padding, where `mask` (N, ...) is true; a single one has variance 0."""
    valid, positions = ~mask[:, None], _positions(x)
    count = valid.sum(positions)
    means = wide(x).masked_fill(~valid, 0).sum(positions) / count.clamp(min=1)
    squares = (wide(x) - per_channel(means, x)).square().masked_fill(~valid, 0)
    return Statistics(means, squares.sum(positions) / (count - 1).clamp(min=1))


@torch.fx.wrap
def combine(mean: Tensor, var: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A convolution over (mean, deviation) with one (C, 1, 2) filter per channel."""
    weight = weight.to(mean.dtype)
    return (mean * weight[:, 0, 0] + (var + EPS).sqrt() * weight[:, 0, 1]).to(dtype)


@torch.fx.wrap
def recalibrate(x: Tensor, scale: Tensor, shift: Tensor | None = None) -> Tensor:
    """`x * scale + shift`. The features are not centred for it: a scale of 1 without shift changes no bit."""
    y = wide(x) * per_channel(scale, x)
    return (y if shift is None else y + per_channel(shift, x)).to(x.dtype)


def _positions(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.dim()))


def _count(x: Tensor) -> int:
    return prod(x.shape[2:])


def _check(x: Tensor, channels: int) -> None:
    check_channels(x, channels)
    if _count(x) < 2:
        raise ValueError(f"Expected at least 2 positions, got features of shape {tuple(x.shape)}: one has no variance")


class SelfNorm(nn.Module):
    """Recalibrates each channel by gates computed from its own mean and deviation."""

    def __init__(self, channels: int, two_sided: bool = False, form: Form = "residual") -> None:
        super().__init__()
        if form not in get_args(Form):
            raise ValueError(f"Unknown form {form!r}: choose one of {', '.join(get_args(Form))}")
        self.channels = channels
        self.two_sided = two_sided
        self.form = form
        self.g_fc, self.g_bn = self._new_gate()
        if two_sided:
            self.f_fc, self.f_bn = self._new_gate()
        self._padding = Padding()

    def _new_gate(self) -> tuple[nn.Conv1d, nn.BatchNorm1d]:
        norm = nn.BatchNorm1d(self.channels)
        if self.form == "residual":
            nn.init.zeros_(norm.weight)
        return nn.Conv1d(self.channels, self.channels, kernel_size=2, groups=self.channels, bias=False), norm

    def forward(self, x: Tensor) -> Tensor:
        return symbolic.step(recalibrate_by_gates, self, x)

    def _recalibrate(self, x: Tensor) -> Tensor:
        units = self._units()
        parameters = [t for fc, norm in units for t in (fc.weight, norm.weight, norm.bias)]
        if (mask := self._padding.of(x)) is not None:
            check_channels(x, self.channels)
            valid = x.masked_fill(mask[:, None], 0)  # whatever padding holds, be it NaN, reaches no gradient
            return torch.where(mask[:, None], x, self._recalibrated(valid, units, valid_style(valid, mask)))
        if torch.is_grad_enabled() and _are_plain(units) and applies(x, "positions", *parameters):
            _check(x, self.channels)
            by_batch = [norm.training or norm.running_mean is None for _, norm in units]
            rule = partial(self._gates_by, by_batch)
            y = self._recalibrated_batch(wide(x), units, rule, parameters) if all(by_batch) else None
            if y is None:
                y = scale_by_moments(wide(x), "positions", rule, *parameters)
            return y.to(x.dtype)
        return self._recalibrated(x, units, style(x, self.channels))

    def _recalibrated_batch(
        self, x: Tensor, units: list[tuple[nn.Conv1d, nn.BatchNorm1d]], rule: Rule, parameters: list[Tensor]
    ) -> Tensor | None:
        """By one kernel, where it applies; moves the running statistics."""
        running = [_running(norm) for _, norm in units]
        again = partial(scale_once_more, "positions", rule)
        eps = [norm.eps for _, norm in units]
        y = recalibrate_batch(x, parameters, running, eps, EPS, self._most, again)
        if y is not None:
            for _, norm in units:
                _count_batch(norm)
        return y

    def _recalibrated(self, x: Tensor, units: list[tuple[nn.Conv1d, nn.BatchNorm1d]], of: Statistics) -> Tensor:
        mean, var = of
        return recalibrate(
            x, *self._gates(mean, [norm(combine(mean, var, fc.weight, norm.weight.dtype)) for fc, norm in units])
        )

    def _units(self) -> list[tuple[nn.Conv1d, nn.BatchNorm1d]]:
        return [(self.g_fc, self.g_bn), *([(self.f_fc, self.f_bn)] if self.two_sided else [])]

    def _gates_by(
        self, by_batch: list[bool], mean: Tensor, var: Tensor, *parameters: Tensor, again: bool = False
    ) -> list[Tensor]:
        """Scale and shift with these in the place of the parameters; moves the running statistics at first."""
        mean, var, shape = mean.flatten(1), var.flatten(1), mean.shape
        logits = [
            _batch_norm(combine(mean, var, filters, weight.dtype), norm, weight, bias, whole, again)
            for (_, norm), filters, weight, bias, whole in zip(
                self._units(), parameters[::3], parameters[1::3], parameters[2::3], by_batch, strict=True
            )
        ]
        return [t.reshape(shape) for t in self._gates(mean, logits)]

    def _gates(self, mean: Tensor, logits: list[Tensor]) -> list[Tensor]:
        g, *f = (t.to(mean.dtype).sigmoid() * self._most for t in logits)
        return [g, *(mean * (t - g) for t in f)]

    @property
    def _most(self) -> int:
        """Gates are in (0, 1) as published, in (0, 2) in the residual form."""
        return 1 if self.form == "published" else 2

    def extra_repr(self) -> str:
        return f"{self.channels}, two_sided={self.two_sided}, form={self.form}"


def recalibrate_by_gates(unit: SelfNorm, x: Tensor) -> Tensor:
    """What the unit does, in training and evaluation."""
    return unit._recalibrate(x)


def _are_plain(units: list[tuple[nn.Conv1d, nn.BatchNorm1d]]) -> bool:
    """Whether the gates are torch's own layers and nothing made of them."""
    return all(type(fc) is nn.Conv1d and type(norm) is nn.BatchNorm1d for fc, norm in units)


def _batch_norm(x: Tensor, norm: nn.BatchNorm1d, weight: Tensor, bias: Tensor, by_batch: bool, again: bool) -> Tensor:
    """What `norm(x)` does with another weight and bias; running statistics included, unless it is done again."""
    running = (norm.running_mean, norm.running_var)
    if again:
        return F.batch_norm(x, *((None, None) if by_batch else running), weight, bias, by_batch, 0.0, norm.eps)
    factor = _factor(norm)
    _count_batch(norm)
    kept = norm.track_running_stats or not norm.training
    return F.batch_norm(x, *(running if kept else (None, None)), weight, bias, by_batch, factor, norm.eps)


def _factor(norm: nn.BatchNorm1d) -> float:
    """By which share the next batch moves the running statistics."""
    if norm.momentum is None and norm.num_batches_tracked is not None:
        return 1 / (float(norm.num_batches_tracked) + 1)
    return norm.momentum or 0.0


def _count_batch(norm: nn.BatchNorm1d) -> None:
    if norm.training and norm.track_running_stats and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)


def _running(norm: nn.BatchNorm1d) -> Running | None:
    """What a batch moves."""
    mean, var = norm.running_mean, norm.running_var
    if not norm.training or not norm.track_running_stats or mean is None or var is None:
        return None
    return mean, var, _factor(norm)
