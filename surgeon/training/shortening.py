"""A recipe with fewer epochs than it was written for: the phases that it counts in epochs become shorter with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def for_fewer_epochs(recipe: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What else has to change because `changes` leaves fewer epochs than phases of the recipe take, and remarks on it.

    Args:
        recipe: The keys of a recipe, as they were written; `epochs` among them.
        changes: Keys that a user has set.
    """
    epochs, written = _count(changes.get("epochs")), _count(recipe["epochs"])
    if not 0 < epochs < written:
        return {}, []
    adapted: dict[str, Any] = {}
    cycle = epochs / (_count(changes.get("snapshots")) or _count(recipe.get("snapshots")) or 1)
    unmixed, warmup = _count(recipe.get("unmixed_epochs")), recipe.get("warmup_epochs", 0)
    if "unmixed_epochs" not in changes and unmixed >= epochs:
        adapted["unmixed_epochs"] = unmixed * epochs // written
    if "warmup_epochs" not in changes and isinstance(warmup, int | float) and warmup >= cycle:
        adapted["warmup_epochs"] = round(warmup * epochs / written, 2)
    old = {"unmixed_epochs": unmixed, "warmup_epochs": warmup}
    return adapted, [
        f"{key} {value:g} instead of {old[key]:g}: the recipe has {written} epochs, and this run {epochs}"
        for key, value in adapted.items()
    ]


def _count(value: object) -> int:
    """0 for what is no number of anything: the recipe is checked later."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
