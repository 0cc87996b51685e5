"""CrossNorm: channels take the mean and deviation of another example, or of another channel.

Tang et al., "CrossNorm and SelfNorm for Generalization under Distribution Shifts", ICCV 2021. One unit after
each residual addition, of which only a few act in a step; labels stay as they are. Training only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import model_validator

from surgeon.inserts.base import RESIDUAL, SITES, Effect, InsertConfig, needs_positions, option, register

if TYPE_CHECKING:
    from torch import nn


class CrossnormConfig(InsertConfig):
    site: str = option(RESIDUAL, f"Where: {SITES}")
    mode: Literal["two-instance", "one-instance"] = option(
        "two-instance", "The style of another example, or of another channel of the same one."
    )
    crop: Literal["neither", "style", "content", "both"] = option(
        "neither", "What to take from a random box instead of the whole image, in two-instance mode."
    )
    beta: float = option(1.0, "The box covers a share of the area drawn from Beta(beta, beta).", gt=0)
    active: int = option(2, "Number of units that act in a step.", ge=1)
    p: float = option(0.25, "Probability that any act in a step.", ge=0, le=1)
    seed: int | None = option(None, "Seed of the network's own generator. Default: torch's generator.")

    @model_validator(mode="after")
    def _crops_go_with_partners(self) -> CrossnormConfig:
        if self.mode == "one-instance" and self.crop != "neither":
            raise ValueError(f"crop={self.crop} with mode=one-instance, only with two-instance")
        return self


def _objection(shape: tuple[int, ...], config: CrossnormConfig) -> str:
    if config.crop != "neither" and len(shape) != 4:
        return f"has features of {len(shape)} dimensions, where crops need (N, C, H, W)"
    return needs_positions(shape, config)


def _take_turns(model: nn.Module, units: Sequence[nn.Module]) -> None:
    from surgeon.inserts.crossnorm.layer import take_turns

    take_turns(model, units)


@register(
    "crossnorm",
    config=CrossnormConfig,
    paper="Tang et al., ICCV 2021",
    effect=Effect.NONE,
    objection=_objection,
    join=_take_turns,
)
def crossnorm(channels: int | None, config: Any) -> nn.Module:  # noqa: ARG001
    """Training exchanges the style of channels between examples at a few random units; labels stay."""
    from surgeon.inserts.crossnorm.layer import CrossNorm, Turns

    turns = Turns(active=config.active, p=config.p, seed=config.seed)
    return CrossNorm(turns, mode=config.mode, crop=config.crop, beta=config.beta)
