"""SelfNorm: a channel's own mean and deviation decide, by learned gates, how much of its style is kept.

Tang et al., "CrossNorm and SelfNorm for Generalization under Distribution Shifts", ICCV 2021. One unit after each
residual addition, active in evaluation too. The default form starts as the identity (surgeon/inserts/selfnorm/layer.py
explains how, and why its gates still learn); the published form needs training before use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from surgeon.inserts.base import RESIDUAL, SITES, Effect, InsertConfig, needs_positions, option, register

if TYPE_CHECKING:
    from torch import nn


class SelfnormConfig(InsertConfig):
    site: str = option(RESIDUAL, f"Where: {SITES}")
    two_sided: bool = option(False, "A second gate, for the mean; without it, one gate scales the features.")
    form: Literal["residual", "published"] = option(
        "residual", "Gates in (0, 2) that start at exactly 1, or the authors' in (0, 1), which start near 1/2."
    )


def _effect(config: SelfnormConfig) -> Effect:
    return Effect.AFTER_TRAINING if config.form == "residual" else Effect.AT_ONCE


@register(
    "selfnorm",
    config=SelfnormConfig,
    paper="Tang et al., ICCV 2021",
    effect=_effect,
    objection=needs_positions,
    learns=True,
)
def selfnorm(channels: int | None, config: Any) -> nn.Module:
    """Learned gates scale each channel by its own mean and deviation, in training and evaluation."""
    from surgeon.inserts.selfnorm.layer import SelfNorm

    assert channels is not None
    return SelfNorm(channels, two_sided=config.two_sided, form=config.form)
