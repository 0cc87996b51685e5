"""How a rewritten layer takes its statistics: rules that can be exchanged, for training and for inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surgeon.layers import statistics

if TYPE_CHECKING:
    from surgeon.layers.surgical import SurgicalNorm


class TrainingRule(Protocol):
    """Normalises a training batch and updates the layer's running statistics; a whole rule, any batch."""

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor: ...


class InferenceRule(Protocol):
    """Normalises a batch in evaluation, in which alpha counts as well; a whole rule, any batch.

    One that the kernel of example weighting can compute as well says so by `noise`, a `native.Noise`.
    """

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor: ...


class BatchStatistics:
    """torch's own BatchNorm: the statistics of the whole batch."""

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor:
        factor = norm.next_average_factor()
        mean, var = (norm.running_mean, norm.running_var) if norm.track_running_stats else (None, None)
        return F.batch_norm(x, mean, var, norm.weight, norm.bias, True, factor, norm.epsilon)


class SynchronisedStatistics:
    """torch's own SyncBatchNorm: the statistics of the batches of all processes."""

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor:
        return nn.SyncBatchNorm.forward(cast("nn.SyncBatchNorm", _ReadBySyncBatchNorm(norm)), x)


class _ReadBySyncBatchNorm:
    """The layer, which carries every attribute that SyncBatchNorm's forward reads, with its eps at any alpha."""

    def __init__(self, norm: SurgicalNorm) -> None:
        self.norm, self.eps = norm, norm.epsilon

    def __getattr__(self, name: str) -> Any:
        return getattr(self.norm, name)


class GroupStatistics:
    """GroupNorm, which also keeps running statistics per channel for example weighting."""

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor:
        if x.numel():
            with torch.no_grad():
                examples = statistics.example_statistics(statistics.wide(x))
                norm.update_running(statistics.pool(examples, torch.ones(len(x), device=x.device)))
        return F.group_norm(x, norm.channel_groups, norm.weight, norm.bias, norm.epsilon)
