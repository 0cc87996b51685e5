"""Mode normalisation: Deecke et al., "Mode Normalization", ICLR 2019.

A gate divides each example among K modes, `g = softmax(W mean(x) + b)`. Each mode has its own mean and
biased variance over the batch, weighted by the gates, and an example is normalised by all of its modes:
`y = weight * sum_k g_k (x - mu_k) / sqrt(var_k + eps) + bias`.

For one example and channel that is a scale and a shift. So nothing of the size of K batches is ever
built: the features are centred by the example's own mean, everything else happens on (N, K, C) numbers,
and one multiplication and addition per feature remain. Because the same mean that was subtracted enters
the shift, and a mode's variance is pooled as `sum w_n (v_n + (m_n - mu)^2)`, no large numbers cancel.

The paper averages E[x] and E[x^2] of each mode over training; the variance is their difference, and at a
mean of 1e3 float32 leaves nothing of it. What is stored here is each mode's mean and variance, updated by
the mixture of moments (`statistics.mix`), which gives the same numbers without the difference;
`running_x` and `running_x2` compute the paper's pair from them.

One mode is BatchNorm: K = 1 is left to torch's own kernel, running statistics (which use torch's unbiased
variance) included, and is equal to the bit.
"""

from __future__ import annotations

from typing import Self

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from surgeon.layers.checks import check_channels
from surgeon.layers.rescale import centre, rescale, scale_and_shift, with_affine
from surgeon.layers.statistics import Statistics, mix, wide

SPREAD = 0.1
"""Deviation of a fresh gate's logits over the data: for two modes, gates of about 0.5 +- 0.025."""


def log_gates(means: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Logarithms of the shares (N, K) of each mode in examples with these (N, C) means.

    The product is summed by hand: autocast would take a matrix product of means in half precision.
    """
    logits = (means.unsqueeze(1) * weight.to(means.dtype)).sum(-1) + bias.to(means.dtype)
    return logits.log_softmax(1)


def mode_statistics(examples: Statistics, log_shares: Tensor) -> Statistics:
    """The (K, C) moments of each mode, in which examples count by their share of it.

    The softmax over examples is `g / sum(g)`, also for a mode from which every example has turned away.
    """
    weights = log_shares.softmax(0).unsqueeze(-1)
    means, variances = (t.unsqueeze(1) for t in examples)
    mean = (weights * means).sum(0)
    return Statistics(mean, (weights * (variances + (means - mean).square())).sum(0))


def by_modes(
    means: Tensor, shares: Tensor, modes: Statistics, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """The scale and shift that normalise centred examples with these means by each mode in its share."""
    scales = shares.unsqueeze(-1) * torch.rsqrt(modes.var + eps)
    return with_affine(scales.sum(1), (scales * (means.unsqueeze(1) - modes.mean)).sum(1), weight, bias)


# Feature extractors trace networks symbolically: each of these functions stays one step of theirs.


@torch.fx.wrap
def normalise_by_batch_modes(
    x: Tensor,
    gate_weight: Tensor,
    gate_bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    factor: float,
) -> Tensor:
    """Training: normalise by the batch's modes, and move the running moments (K, C) by `factor` towards them."""
    check_channels(x, running_mean.shape[1])
    if len(running_mean) == 1:
        return F.batch_norm(x, running_mean[0], running_var[0], weight, bias, True, factor, eps)
    if x.numel() <= x.shape[1]:
        raise ValueError(f"Expected more than 1 value per channel when training, got shape {tuple(x.shape)}")

    moved = False

    def rule(
        examples: Statistics, gate_weight: Tensor, gate_bias: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        nonlocal moved
        log_shares = log_gates(examples.mean, gate_weight, gate_bias)
        modes = mode_statistics(examples, log_shares)
        if not moved:
            _move(Statistics(running_mean, running_var), modes, factor)
            moved = True
        return by_modes(examples.mean, log_shares.exp(), modes, weight, bias, eps)

    return rescale(wide(x), rule, gate_weight, gate_bias, weight, bias).to(x.dtype)


@torch.fx.wrap
def normalise_by_running_modes(
    x: Tensor,
    gate_weight: Tensor,
    gate_bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """Evaluation: normalise by the running moments (K, C)."""
    check_channels(x, running_mean.shape[1])
    if len(running_mean) == 1:
        return F.batch_norm(x, running_mean[0], running_var[0], weight, bias, False, 0.0, eps)
    centred, means = centre(wide(x))
    shares = log_gates(means, gate_weight, gate_bias).exp()
    modes = Statistics(wide(running_mean), wide(running_var))
    return scale_and_shift(centred, *by_modes(means, shares, modes, weight, bias, eps)).to(x.dtype)


@torch.no_grad()
def _move(running: Statistics, batch: Statistics, factor: float) -> None:
    for kept, moved in zip(running, mix(running, batch, factor), strict=True):
        kept.copy_(moved)


class ModeStatistics(nn.Module):
    """The gate and the running moments of each mode, beside a norm layer's own weight and bias."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, modes: int) -> None:
        super().__init__()
        if modes < 1:
            raise ValueError(f"Expected at least one mode, got {modes}")
        self.gate = nn.Linear(channels, modes)
        self.gate.requires_grad_(modes > 1)  # nothing depends on the gate of a single mode
        self.register_buffer("running_mean", torch.zeros(modes, channels))
        self.register_buffer("running_var", torch.ones(modes, channels))

    @classmethod
    def from_running(cls, mean: Tensor, var: Tensor, modes: int, seed: int = 0) -> Self:
        """Every mode starts as the BatchNorm with these running statistics.

        As the modes are equal, evaluation equals BatchNorm whatever the gates say. In training equal
        gates would keep the modes equal for ever, so each logit starts as a small random direction of the
        standardised channel means: as small in channels of any scale.
        """
        self = cls(len(mean), modes).to(mean)
        self.running_mean.copy_(mean)
        self.running_var.copy_(var)
        set_gate(self.gate, wide(mean.detach()), wide(var.detach()), seed)
        return self

    @property
    def modes(self) -> int:
        return len(self.running_mean)

    @property
    def running_x(self) -> Tensor:
        """E[x] of each mode, (K, C)."""
        return self.running_mean

    @property
    def running_x2(self) -> Tensor:
        """E[x^2] of each mode, (K, C)."""
        return wide(self.running_var) + wide(self.running_mean).square()

    def reset_running_stats(self) -> None:
        """To the initial values of torch's BatchNorm."""
        self.running_mean.zero_()
        self.running_var.fill_(1)

    @torch.no_grad()
    def set_moments(self, running_x: Tensor, running_x2: Tensor) -> None:
        """Take over running E[x] and E[x^2], the form in which others store them."""
        self.running_mean.copy_(running_x)
        self.running_var.copy_((running_x2.double() - running_x.double().square()).clamp(min=0))

    def normalise_batch(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, factor: float = 0.1
    ) -> Tensor:
        """Training: normalise by the batch's modes, and move the running moments by `factor` towards them."""
        return normalise_by_batch_modes(x, *self._tensors, weight, bias, eps, factor)

    def normalise_running(self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        """Evaluation: normalise by the running moments."""
        return normalise_by_running_modes(x, *self._tensors, weight, bias, eps)

    def gates(self, x: Tensor) -> Tensor:
        """The share (N, K) of each mode in each example."""
        return log_gates(centre(wide(x))[1], self.gate.weight, self.gate.bias).exp()

    @property
    def _tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.gate.weight, self.gate.bias, self.running_mean, self.running_var

    def extra_repr(self) -> str:
        return f"modes={self.modes}"


@torch.no_grad()
def set_gate(gate: nn.Linear, mean: Tensor, var: Tensor, seed: int) -> None:
    """Logits that are small random directions of the inputs, standardised by their mean and variance."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(gate.weight.shape, generator=generator).to(mean) * SPREAD / len(mean) ** 0.5
    weight = directions * torch.rsqrt(var + 1e-5)
    gate.weight.copy_(weight)
    gate.bias.copy_(-(weight * mean).sum(1))
