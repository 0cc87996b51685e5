"""Choosing a setting under conditions: on some families of corruptions, confirmed on others.

A setting that is chosen by how it does under some corruptions should help under others too. So where images are held
out, corruptions are as well: noise and blur choose, weather and digital processing confirm.
"""

from __future__ import annotations

from collections.abc import Sequence

from surgeon.conditions.base import Asked, Family, ask
from surgeon.conditions.groups import FIFTEEN

CHOOSING_FAMILIES = (Family.NOISE, Family.BLUR)


def parted(asked: Sequence[Asked], confirm: bool) -> tuple[list[Asked], list[Asked]]:
    """The conditions to choose under, and those to confirm under.

    Args:
        asked: All that were asked for; clean images are measured in any case.
        confirm: Whether there are images to confirm on.
    """
    given = [one for one in asked if one.condition.family is not Family.CLEAN]
    if not confirm:
        return given, given
    corruptions = [one for one in given if one.condition.family in FIFTEEN]
    held_out = [one for one in corruptions if one.condition.family not in CHOOSING_FAMILIES]
    if held_out and len(held_out) < len(corruptions):
        choosing = [one for one in given if one not in held_out]
        return choosing, [one for one in given if one in held_out or one not in corruptions]
    families = {one.condition.family for one in corruptions}
    severities = {one.severity for one in corruptions}
    others = [
        one
        for one in (ask(["corruptions"]) if corruptions else ())
        if one.condition.family not in families and one.severity in severities
    ]
    return given, others or given


def names(asked: Sequence[Asked]) -> tuple[str, ...]:
    """The conditions in few words: each corruption once, whatever its severities."""
    return tuple(dict.fromkeys(one.condition.name if one.severity is not None else one.name for one in asked))
