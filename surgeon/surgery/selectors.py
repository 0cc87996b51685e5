"""Which of a network's norm layers somebody means: by globs, stage, depth or place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from surgeon.core.errors import SurgeonError, count, did_you_mean, listing


def select(names: Sequence[str], selector: str) -> list[str]:
    """Names that a selector picks: globs, `stem`, `stage2`, `last`, `depth=0.5-1`; several with commas."""
    picked: set[str] = set()
    parts = [part for p in _split_outside_brackets(selector) if (part := p.strip())]
    if not parts:
        raise SurgeonError(
            f"The selector {selector!r} is empty.", "Write a glob ('layer[34].*'), stem, stage2 or last."
        )
    for part in parts:
        matches = _select_one(names, part)
        if not matches:
            roots = list(dict.fromkeys(_stage_of(name) or name for name in names))
            raise SurgeonError(
                f"No norm layer matches {part!r}.",
                did_you_mean(part, names) or f"There are {count(len(names), 'layer')} in {listing(roots)}.",
            )
        picked.update(matches)
    return [name for name in names if name in picked]


def _split_outside_brackets(selector: str) -> list[str]:
    return re.split(r",(?![^\[]*\])", selector)


def _select_one(names: Sequence[str], part: str) -> list[str]:
    stages = list(dict.fromkeys(stage for name in names if (stage := _stage_of(name))))
    if part == "last":
        return list(names[-1:])
    if part == "stem":
        first = next((i for i, name in enumerate(names) if _stage_of(name)), len(names))
        return list(names[:first])
    if match := re.fullmatch(r"stage(\d+)", part):
        index = int(match[1]) - 1
        chosen = stages[index] if 0 <= index < len(stages) else None
        if chosen:
            return [name for name in names if _stage_of(name) == chosen]
    if match := re.fullmatch(r"depth=(\d*\.?\d+)-(\d*\.?\d+)", part):
        low, high = (float(bound) * (len(names) - 1) for bound in match.groups())
        return [name for i, name in enumerate(names) if low <= i <= high]
    return [name for name in names if fnmatchcase(name, part)]


def _stage_of(name: str) -> str | None:
    """The part of a name that says its stage: up to the first number, e.g. `layer3`, `blocks.2`."""
    match = re.match(r"(?:[^.\d]+\.)*?(?:[^.\d]+\d+|[^.\d]+\.\d+)(?=\.)", name)
    return match[0] if match else None
