"""Running statistics that are corrected example by example: Gong et al., NeurIPS 2022."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.fx
from torch import Tensor

from surgeon.layers import kernels
from surgeon.layers.checks import check_channels
from surgeon.layers.native import Noise
from surgeon.layers.rescale import rescale, with_affine
from surgeon.layers.statistics import Statistics, mix, share_within_groups, wide
from surgeon.layers.surgical import SurgicalNorm


@dataclass(frozen=True)
class CorrectedStatistics:
    """Evaluation by running statistics that are moved towards an example's own as far as these are beyond noise."""

    k: float
    weight: float

    @property
    def noise(self) -> Noise:
        """What the kernel of example weighting is told."""
        return Noise(self.k, self.weight)

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        return infer_corrected(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.alpha, norm.epsilon,
            norm.channel_groups, self.k, self.weight,
        )  # fmt: skip


@torch.fx.wrap  # feature extractors trace networks symbolically: this stays one step of theirs
def infer_corrected(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    alpha: Tensor,
    eps: float,
    channel_groups: int,
    k: float,
    share: float,
) -> Tensor:
    """Normalise each example by corrected running statistics, into which alpha mixes its own."""
    check_channels(x, len(mean))
    if channel_groups == len(mean):
        y = kernels.example_weighted(x, mean, var, weight, bias, alpha, eps, noise=Noise(k, share))
        if y is not None:
            return y
    values = max(math.prod(x.shape[2:]), 1) * (x.shape[1] // channel_groups)  # of none there is nothing to divide

    def rule(
        channels: Statistics, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, alpha: Tensor
    ) -> tuple[Tensor, Tensor]:
        running = share_within_groups(Statistics(wide(mean), wide(var)), channel_groups)
        own = share_within_groups(channels, channel_groups)
        used = mix(corrected(running, own, values, k, share), own, alpha)
        scale = torch.rsqrt(used.var + eps)
        return with_affine(scale, (channels.mean - used.mean) * scale, weight, bias)

    return rescale(wide(x), rule, mean, var, weight, bias, alpha).to(x.dtype)


def corrected(running: Statistics, own: Statistics, values: int, k: float, share: float) -> Statistics:
    """(C,) running statistics moved towards the (N, C) ones of examples, as far as `k` standard errors do not explain.

    The standard errors are those of the mean and the variance of so many independent normal values.
    """
    mean = running.mean + share * _beyond(own.mean - running.mean, k * (running.var / values).sqrt())
    if values == 1:  # it has no variance
        return Statistics(mean, running.var)
    noise = k * math.sqrt(2 / (values - 1)) * running.var
    return Statistics(mean, (running.var + share * _beyond(own.var - running.var, noise)).clamp(min=0))


def _beyond(difference: Tensor, noise: Tensor) -> Tensor:
    """What is left of a difference of either sign when noise is taken off."""
    return difference.sign() * (difference.abs() - noise).relu()
