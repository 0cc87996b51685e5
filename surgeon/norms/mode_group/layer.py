"""Mode group normalisation: Deecke et al., "Mode Normalization", ICLR 2019.

A gate divides the channels of each example among K modes; see `normalise_by_channel_modes`.
"""

from __future__ import annotations

from typing import Self

import torch
import torch.fx
from torch import Tensor, nn

from surgeon.layers.checks import check_channels
from surgeon.layers.rescale import centre, rescale, with_affine
from surgeon.layers.statistics import Statistics, pool, wide
from surgeon.norms.mode.layer import set_gate


def log_channel_gates(means: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Logarithms of the shares (N, K, C) of each mode in channels with these (N, C) means."""
    weight, bias = (t.to(means.dtype).reshape(-1, 1) for t in (weight, bias))
    return (means.unsqueeze(1) * weight + bias).log_softmax(1)


@torch.fx.wrap
def normalise_by_channel_modes(
    x: Tensor,
    gate_weight: Tensor,
    gate_bias: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    channels: int | None = None,
) -> Tensor:
    """Mode group normalisation: each example's channels are divided among K modes by their means.

    `y = (weight / K) * sum_k (x - mu_k) / sqrt(var_k + eps) + bias`, with gates `softmax_k(w_k mean + b_k)`
    from K weights and biases. The paper leaves open whether a mode's variance is that of the channels'
    pooled values or of all their positions. Here it is that of all positions: then one mode is GroupNorm
    of one group, and features without positions are treated alike. Only a layer knows how many channels there
    must be.
    """
    check_channels(x, x.shape[1] if channels is None else channels)

    def rule(
        channels: Statistics, gate_weight: Tensor, gate_bias: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        means, variances = (t.unsqueeze(1) for t in channels)
        weights = log_channel_gates(channels.mean, gate_weight, gate_bias).softmax(2)  # g / sum(g) over channels
        mode_means = (weights * means).sum(2, keepdim=True)
        mode_variances = (weights * (variances + (means - mode_means).square())).sum(2, keepdim=True)
        scales = torch.rsqrt(mode_variances + eps)
        shift = (scales * (means - mode_means)).mean(1)
        return with_affine(scales.mean(1).expand_as(shift), shift, weight, bias)

    return rescale(wide(x), rule, gate_weight, gate_bias, weight, bias).to(x.dtype)


class ChannelModes(nn.Module):
    """The gate of mode group normalisation, beside a norm layer's own weight and bias; it has no statistics."""

    def __init__(self, modes: int) -> None:
        super().__init__()
        if modes < 1:
            raise ValueError(f"Expected at least one mode, got {modes}")
        self.gate = nn.Linear(1, modes)

    @classmethod
    def from_running(cls, mean: Tensor, var: Tensor, modes: int, seed: int = 0) -> Self:
        """Near-uniform gates for channels with these running statistics; equal ones would stay equal."""
        self = cls(modes).to(mean)
        channels = Statistics(wide(mean.detach()), wide(var.detach()))
        pooled = pool(channels, torch.ones_like(channels.mean))
        set_gate(self.gate, pooled.mean.reshape(1), pooled.var.reshape(1), seed)
        return self

    def normalise(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, channels: int | None = None
    ) -> Tensor:
        """The same in training and evaluation."""
        return normalise_by_channel_modes(x, self.gate.weight, self.gate.bias, weight, bias, eps, channels)

    def gates(self, x: Tensor) -> Tensor:
        """The share (N, K, C) of each mode in each channel of each example."""
        return log_channel_gates(centre(wide(x))[1], self.gate.weight, self.gate.bias).exp()

    def extra_repr(self) -> str:
        return f"modes={self.gate.out_features}"
