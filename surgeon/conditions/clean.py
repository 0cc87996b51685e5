"""Images as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import ConditionConfig, Family, Seen, register

if TYPE_CHECKING:
    from torch import Tensor


@register("clean", family=Family.CLEAN)
def clean(config: ConditionConfig, seen: Seen) -> Tensor:  # noqa: ARG001
    """Images as they are."""
    return seen.pixels
