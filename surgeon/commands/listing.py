"""What there is to choose from: the one table of all registries.

By it they are listed (`surgeon ls`), named in `--help`, completed in the shell, documented, examined by
`surgeon doctor`, and put through the contract tests. A registry is imported when it is asked for, without torch.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from surgeon.core.errors import SurgeonError, did_you_mean

if TYPE_CHECKING:
    from surgeon.core.entry import Entry
    from surgeon.core.registry import Registry


@dataclass(frozen=True)
class ListedRegistry:
    """One registry as people see it.

    Args:
        name: What follows `surgeon ls`, and what the registry is called in its module.
        module: Where the registry is.
        title: What its things are called.
        option: By which they are chosen on the command line.
        advice: What is worth knowing of all of them.
    """

    name: str
    module: str
    title: str
    option: str
    advice: str = ""

    @property
    def registry(self) -> Registry[Any]:
        registry: Registry[Any] = getattr(importlib.import_module(self.module), self.name)
        return registry

    @property
    def entries(self) -> list[Entry[Any]]:
        """All that is registered, by name."""
        return [self.registry[name] for name in self.registry]


REGISTRIES = {
    kind.name: kind
    for kind in (
        ListedRegistry(
            "norms",
            "surgeon.norms.base",
            "Rewrites",
            "--bn",
            "Rewrites that change different phases compose: --bn ghost:size=16 --bn example-weighted:alpha=0.05",
        ),
        ListedRegistry(
            "inserts",
            "surgeon.inserts.base",
            "Inserts",
            "--insert",
            "site= is stem, stage2, residual, image, or a module's name.",
        ),
        ListedRegistry(
            "augments",
            "surgeon.augment.base",
            "Augmentations",
            "--augment",
            "Look at one: surgeon preview NAME --data digits. Measure how far they are: surgeon affinity.",
        ),
        ListedRegistry(
            "losses",
            "surgeon.losses.base",
            "Losses",
            "--loss",
            "Terms are added up: --loss cross-entropy:smoothing=0.1 --loss logit-squeezing:beta=0.001",
        ),
        ListedRegistry("metrics", "surgeon.metrics.base", "Metrics", "--metric"),
        ListedRegistry("views", "surgeon.views.base", "Test-time augmentation", "--tta"),
        ListedRegistry(
            "conditions",
            "surgeon.conditions.base",
            "Conditions",
            "--under",
            "Look at one: surgeon preview NAME --data digits. A corruption without severity stands for all five.",
        ),
    )
}


def documents(kind: ListedRegistry, pattern: str | None = None) -> list[dict[str, Any]]:
    """What is registered, as data; only names that match a pattern, if there is one."""
    names = matching(list(kind.registry), pattern)
    return [document(kind.registry[name]) for name in names]


def document(entry: Entry[Any]) -> dict[str, Any]:
    """One registered thing as data."""
    return {
        "name": entry.name,
        "summary": entry.summary,
        "paper": entry.paper,
        **entry.facts(),
        "options": entry.options,
    }


def matching(names: list[str], pattern: str | None) -> list[str]:
    """The names that a glob matches; without its signs, the name that is the pattern, else those that it is part of."""
    if pattern is None or pattern in names:
        return [name for name in names if pattern in (None, name)]
    glob = pattern if set(pattern) & set("*?[") else f"*{pattern}*"
    matches = [name for name in names if fnmatchcase(name.lower(), glob.lower())]
    if not matches:
        raise SurgeonError(
            f"Nothing matches {pattern!r}.", did_you_mean(pattern, names) or "Patterns are globs, e.g. '*resnet*'."
        )
    return matches


def sweepable() -> dict[str, tuple[float, float]]:
    """Every option of a rewrite that can be tuned without retraining, as REWRITE.OPTION, with its usual range."""
    return {
        f"{entry.name}.{option}": span
        for entry in REGISTRIES["norms"].entries
        for option, span in entry.sweepable.items()
    }
