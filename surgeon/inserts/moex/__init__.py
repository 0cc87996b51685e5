"""MoEx: features take the mean and deviation of another example's, and the loss that example's label for a part.

Li et al., "On Feature Normalization and Data Augmentation", CVPR 2021. One site, training only. What
was exchanged in a step is told by the unit: see surgeon/inserts/moex/loss.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import field_validator

from surgeon.inserts.base import Effect, InsertConfig, needs_positions, option, register

if TYPE_CHECKING:
    from torch import nn


class MoexConfig(InsertConfig):
    norm: Literal["pono", "in", "ln", "gn", "gpono"] = option(
        "pono", "Moments over channels (pono), positions (in), both (ln), groups and positions (gn), or groups (gpono)."
    )
    p: float = option(0.5, "Probability that a batch is exchanged (1 was used on ImageNet).", ge=0, le=1)
    lam: float = option(0.9, "Weight of the example's own label; its partner's has the rest.", ge=0, le=1)
    groups: int = option(4, "Groups of channels, for gn and gpono.", ge=1)
    channels_per_group: int | None = option(None, "Channels per group, instead of the number of groups.", ge=1)
    positive_only: bool = option(False, "Moments of positive entries only.")
    seed: int | None = option(None, "Seed of the unit's own generator. Default: torch's generator.")

    @field_validator("norm", mode="before")
    @classmethod
    def _full_name(cls, value: Any) -> Any:
        return "gpono" if value == "group-pono" else value


def _objection(shape: tuple[int, ...], config: MoexConfig) -> str:
    channels = shape[1]
    if config.norm in ("gn", "gpono"):
        size = config.channels_per_group or channels // min(config.groups, channels)
        if channels % size or (config.channels_per_group is None and channels % config.groups):
            return f"has {channels} channels, which cannot be cut into these groups"
        if config.norm == "gpono":
            return "" if size > 1 else "has one channel per group, which has no deviation"
    return needs_positions(shape, config) if config.norm == "in" else ""


@register(
    "moex",
    config=MoexConfig,
    paper="Li et al., CVPR 2021",
    effect=Effect.NONE,
    objection=_objection,
    single=True,
    aliases={"pono-moex": {"norm": "pono", "site": "stem"}},
)
def moex(channels: int | None, config: Any) -> nn.Module:  # noqa: ARG001
    """Training exchanges the moments of features between examples; the loss mixes their labels."""
    from surgeon.inserts.moex.layer import MomentExchange

    return MomentExchange(
        config.norm,
        p=config.p,
        lam=config.lam,
        groups=config.groups,
        channels_per_group=config.channels_per_group,
        positive_only=config.positive_only,
        seed=config.seed,
    )
