"""Giving the tensors of a weights file the names that a network has for them, by rules: `PATTERN=REPLACEMENT`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from surgeon.core.errors import SurgeonError, count, listing

if TYPE_CHECKING:
    from surgeon.models.weights import WeightsFile


class Match(StrEnum):
    """How layers of a weights file find theirs in the network, if not by their names."""

    SHAPES = "shapes"


@dataclass(frozen=True)
class Naming:
    """How the names in a weights file become those of the network.

    Args:
        rules: Of the form `PATTERN=REPLACEMENT`, applied to every name one after the other.
        match: What the layers are matched by after that; None: by their names.
    """

    rules: tuple[str, ...] = ()
    match: Match | None = None

    @classmethod
    def of(cls, rename: Sequence[str], match: str | None) -> Naming:
        """From what a user has written, checked."""
        for rule in rename:
            _parsed(rule)
        try:
            return cls(tuple(rename), None if match is None else Match(match))
        except ValueError:
            raise SurgeonError(f"--match cannot be {match!r}.", f"Choose {listing(Match, 'or')}.") from None

    def __bool__(self) -> bool:
        return bool(self.rules or self.match)


AS_NAMED = Naming()


def _parsed(rule: str) -> tuple[re.Pattern[str], str]:
    # The last "=", since a pattern may hold one, as in (?=...), and a name does not.
    pattern, equals, replacement = rule.rpartition("=")
    if not equals or not pattern:
        raise SurgeonError(
            f"--rename cannot be '{rule}'.", r"Write PATTERN=REPLACEMENT, for example 'stage_(\d+)=layer\1'."
        )
    try:
        compiled = re.compile(pattern)
        re.sub("()" * compiled.groups, _named_groups(compiled, replacement), "")
    except (re.error, LookupError) as error:
        raise SurgeonError(
            f"--rename '{rule}' is not a regular expression and its replacement: {error}.",
            r"Groups are (…) in the pattern and \1 in the replacement; a plain dot is \.",
        ) from None
    return compiled, replacement


def _named_groups(pattern: re.Pattern[str], replacement: str) -> str:
    """The replacement with named groups as numbers, so that it can be checked against a pattern without names."""
    return re.sub(r"\\g<([A-Za-z_]\w*)>", lambda found: rf"\g<{pattern.groupindex[found[1]]}>", replacement)


def renamed(weights: WeightsFile, rules: Iterable[str]) -> WeightsFile:
    """The same tensors under the names that the rules make of theirs; two of one name are refused."""
    names = {name: name for name in weights.state}
    notes = []
    for rule in rules:
        pattern, replacement = _parsed(rule)
        after = {name: pattern.sub(replacement, now) for name, now in names.items()}
        changed = [name for name in names if after[name] != names[name]]
        if not changed:
            raise SurgeonError(
                f"--rename '{rule}' changes no name in {str(weights.path)!r}.",
                f"The names there are {listing(map(repr, names.values()), limit=4)}.",
            )
        first = changed[0]
        notes.append(f"--rename '{rule}' changed {count(len(changed), 'name')}: {names[first]} → {after[first]}, …")
        names = after
    _refuse_collisions(names)
    state = {names[name]: tensor for name, tensor in weights.state.items()}
    return replace(weights, state=state, notes=(*weights.notes, *notes))


def _refuse_collisions(names: dict[str, str]) -> None:
    before: dict[str, str] = {}
    for old, new in names.items():
        if not new:
            raise SurgeonError(f"--rename makes the name {old!r} empty.", "Match less of it.")
        if new in before:
            raise SurgeonError(
                f"--rename makes one name, {new!r}, of {before[new]!r} and {old!r}.",
                r"Keep the part in which they differ, as a group: (…) in the pattern, \1 in the replacement.",
            )
        before[new] = old
