"""Instance-aware BatchNorm: at inference, correct the running statistics for what noise cannot explain in an example.

Gong et al., "NOTE: Robust Continual Test-time Adaptation Against Temporal Correlation", NeurIPS 2022. With m, v the
mean and biased variance of one example over its n positions, M, V the running statistics, and
S(d; t) = sign(d) max(|d| - t, 0):

    mu  = M + a S(m - M; k sqrt(V / n))
    var = max(V + a S(v - V; k V sqrt(2 / (n - 1))), 0)

A single position has no variance whose noise could be told, so V stays. Where a layer is example-weighted too,
alpha mixes the example's own statistics into the corrected ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import PlainSerializer

from surgeon.norms.base import NormConfig, Phase, option, register

if TYPE_CHECKING:
    from surgeon.layers.surgical import SurgicalNorm


def _written(number: float) -> float | str:
    """JSON has no infinity: as a word it survives being written and read."""
    return "inf" if math.isinf(number) else number


class InstanceAwareConfig(NormConfig):
    k: Annotated[float, PlainSerializer(_written, when_used="json")] = option(
        8.0,
        "How many standard errors of an example's statistics count as noise: 0 corrects every difference, "
        "inf none (the original network).",
        sweep=(2.0, 32.0),
        ge=0,
    )
    weight: float = option(
        1.0,
        "Share of the deviation beyond noise to correct: 0 is the original network.",
        sweep=(0.0, 1.0),
        ge=0,
        le=1,
    )

    @property
    def corrects(self) -> bool:
        """Whether anything is left to correct."""
        return self.weight > 0 and not math.isinf(self.k)

    @classmethod
    def notes(cls, layers: Sequence[Self]) -> Sequence[str]:
        if any(layer.corrects for layer in layers):
            return ()
        return ("k is inf or weight is 0, so predictions stay as they are: set both, e.g. --bn instance-aware:k=8",)


def _objection(norm: SurgicalNorm, config: Any) -> str:  # noqa: ARG001
    if not norm.source_has_statistics:
        return f"is a {norm.source}: instance-aware corrects the running statistics of BatchNorm only"
    if norm.running_mean is None:
        return (
            "has no running statistics (track_running_stats=False), so there is nothing to correct: "
            "collect them with surgeon.collect_statistics, or leave the layer out with --layers"
        )
    return ""


@register(
    "instance-aware",
    config=InstanceAwareConfig,
    changes=Phase.CORRECTION,
    identity=lambda _: {"k": math.inf, "weight": 0.0},
    paper="Gong et al., NeurIPS 2022",
    objection=_objection,
)
def instance_aware(norm: SurgicalNorm, config: Any) -> None:
    """Inference corrects the running statistics for each example's deviations beyond sampling noise."""
    from surgeon.norms.instance_aware.layer import CorrectedStatistics

    norm.inference_rule = CorrectedStatistics(config.k, config.weight) if config.corrects else None
