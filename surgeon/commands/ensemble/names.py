"""The members of an ensemble as they are typed, checked before torch is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from surgeon.core.errors import SurgeonError
from surgeon.models.names import check_model_name

FEWEST_MEMBERS = 2


def check_member_names(names: Sequence[str]) -> None:
    """Refuse what cannot be members, and members that would count twice."""
    seen: dict[str, str] = {}
    for name in names:
        _check(name)
        place = str(Path(name).resolve()) if Path(name).is_dir() else name
        if place in seen:
            raise SurgeonError(
                f"{name!r} is the same checkpoint as {seen[place]!r}.", "Name each member once: all count alike."
            )
        seen[place] = name
    if len(names) < FEWEST_MEMBERS:
        raise SurgeonError(
            f"{names[0]!r} is one member, but an ensemble needs two or more.",
            "Pass more checkpoints, or use `surgeon eval` for one.",
        )


def _check(name: str) -> None:
    path = Path(name)
    if path.is_file():
        raise SurgeonError(f"{name!r} is a file, not a checkpoint folder.", "Leave it out, e.g. with 'snapshots/*/'.")
    if any(sign in name for sign in "*?[") and not path.is_dir():
        raise SurgeonError(f"No folder matches {name!r}.", "Check the path: the shell has found nothing there.")
    check_model_name(name)
