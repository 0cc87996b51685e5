"""What somebody else's package adds: a rewrite with an option that can be swept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surgeon.norms import NormConfig, Phase, option, register

if TYPE_CHECKING:
    from surgeon.layers.surgical import SurgicalNorm


class TiltConfig(NormConfig):
    percent: float = option(0.0, "Weight of the example's own statistics in percent.", sweep=(0.0, 30.0), ge=0, le=100)


@register(
    "their-percent",
    config=TiltConfig,
    changes=Phase.INFERENCE,
    identity=lambda norm: {"percent": 100 * norm.identity_alpha},
    paper="They, 2024",
)
def their_percent(norm: SurgicalNorm, config: Any) -> None:
    """Example weighting by a weight that is given in percent."""
    norm.set_alpha(config.percent / 100)
