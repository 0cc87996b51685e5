"""Example-weighted BatchNorm: at inference, mix the example's own statistics into the running ones.

Summers and Dinneen, "Four Things Everyone Should Know to Improve Batch Normalization", ICLR 2020.
With m, v the mean and biased variance of one example over its spatial positions and M, V the
running statistics:

    mu  = M + alpha (m - M)
    var = alpha v + (1 - alpha) V + alpha (1 - alpha) (m - M)^2

which equals the paper's mixture of E[x] and E[x^2] but, unlike it, never cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field

from surgeon.norms.base import NormConfig, Phase, option, register

if TYPE_CHECKING:
    from surgeon.layers.surgical import SurgicalNorm

Weight = Annotated[float, Field(ge=0, le=1)]


class ExampleWeightedConfig(NormConfig):
    alpha_option = "alpha"
    takes_group_norm = True

    alpha: Weight | tuple[Weight, ...] = option(
        0.0,
        "Weight of the example's own statistics: 0 is the original network, 1 uses the example alone; "
        "one number, or one per channel.",
        sweep=(0.0, 0.3),
    )

    @classmethod
    def notes(cls, layers: Sequence[Self]) -> Sequence[str]:
        if any(layer.alpha for layer in layers):
            return ()
        return ("alpha is 0, so predictions stay as they are: set one, e.g. --bn example-weighted:alpha=0.05",)


def _objection(norm: SurgicalNorm, config: ExampleWeightedConfig) -> str:
    if norm.running_mean is None:
        return (
            "has no running statistics (track_running_stats=False), so there is nothing to weigh the example against: "
            "collect them with surgeon.collect_statistics, or leave the layer out with --layers"
        )
    if isinstance(config.alpha, tuple) and len(config.alpha) != norm.num_features:
        return f"has {norm.num_features} channels, but alpha lists {len(config.alpha)} values"
    if not norm.has_statistics and config.alpha != norm.identity_alpha:
        return (
            f"is a {norm.source} without collected statistics: convert it with alpha={norm.identity_alpha:g}, "
            "run surgeon.collect_statistics on training images, then set alpha"
        )
    return ""


@register(
    "example-weighted",
    config=ExampleWeightedConfig,
    changes=Phase.INFERENCE,
    identity=lambda norm: {"alpha": norm.identity_alpha},
    paper="Summers & Dinneen, ICLR 2020",
    objection=_objection,
)
def example_weighted(norm: SurgicalNorm, config: Any) -> None:
    """Inference mixes each example's own statistics into the running ones with weight alpha."""
    norm.set_alpha(config.alpha)
