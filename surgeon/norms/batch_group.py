"""Batch-Group normalisation: statistics over groups of channels and groups of examples together.

Summers and Dinneen, ICLR 2020, for batches too small for BatchNorm. One example per group is
GroupNorm; one channel per group is (ghost) BatchNorm. Running statistics stay per channel, under
BatchNorm's names; evaluation averages their E[x] and E[x^2] over each channel group, and example
weighting then mixes in the example's own statistics of the same channel groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import PositiveInt

from surgeon.norms.base import NormConfig, Phase, option, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.layers.surgical import SurgicalNorm


class BatchGroupConfig(NormConfig):
    channel_groups: PositiveInt | Literal["channels"] = option(
        32, "Number of channel groups; `channels` gives each channel its own group, as in BatchNorm."
    )
    examples_per_group: int = option(2, "Examples that share statistics in training.", ge=1)

    @classmethod
    def notes(cls, layers: Sequence[Self]) -> Sequence[str]:
        if all(layer.channel_groups == "channels" for layer in layers):
            return ()
        return ("batch-group changes predictions at once: train the network before you use it",)


@dataclass(frozen=True)
class BatchGroupStatistics:
    """Statistics shared by contiguous groups of examples and by groups of channels."""

    examples: int

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor:
        from surgeon.layers import statistics
        from surgeon.layers.checks import check_channels

        check_channels(x, norm.num_features)
        # One value has no variance, but a group of channels of one position has.
        values = x.shape[2:].numel() * (norm.num_features // norm.channel_groups)
        bounds = statistics.group_bounds(len(x), self.examples, values)
        y, groups = statistics.normalise_groups(
            x, norm.weight, norm.bias, bounds, norm.epsilon, norm.channel_groups
        )  # fmt: skip
        norm.update_running_by_groups(groups, bounds)
        return y


def _objection(norm: SurgicalNorm, config: BatchGroupConfig) -> str:
    if norm.frozen:
        return "is frozen and never takes batch statistics: unfreeze it first, or leave it out with --layers"
    if not norm.source_has_statistics:
        return f"is a {norm.source}: batch-group applies to BatchNorm only"
    if norm.running_mean is None:
        return "has no running statistics (track_running_stats=False), which evaluation needs"
    if config.channel_groups != "channels" and norm.num_features % config.channel_groups:
        divisors = [d for d in range(1, 65) if norm.num_features % d == 0]
        return (
            f"has {norm.num_features} channels, which channel_groups={config.channel_groups} does not divide "
            f"(possible up to 64: {', '.join(map(str, divisors))})"
        )
    return ""


@register(
    "batch-group",
    config=BatchGroupConfig,
    changes=frozenset({Phase.TRAINING}),
    identity=lambda _: {"channel_groups": "channels"},
    paper="Summers & Dinneen, ICLR 2020",
    objection=_objection,
)
def batch_group(norm: SurgicalNorm, config: Any) -> None:
    """Groups of channels share statistics; in training, small groups of examples as well."""
    norm.channel_groups = norm.num_features if config.channel_groups == "channels" else config.channel_groups
    norm.training_rule = BatchGroupStatistics(config.examples_per_group)
