"""Augmentations as they are typed, checked before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Iterable

from surgeon.options import parse_spec


def check_augments(specs: Iterable[str]) -> None:
    """Refuse unknown names and options."""
    from surgeon.augment.base import augments

    for spec in specs:
        for choice in spec.split("|"):
            if "|" in spec and choice.strip() == "none":
                continue
            name, options = parse_spec(choice)
            augments[name].configure(options)
