"""What a rewrite of a normalisation layer is: a name, documented options, and what it changes.

This module and the variant files beside it import torch only inside functions, so that
`surgeon ls norms` and `--help` can read every option without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from surgeon.core.entry import Entry, summary_of
from surgeon.core.registry import Registry
from surgeon.core.specs import option
from surgeon.layers.rewriting import NormConfig

if TYPE_CHECKING:
    from surgeon.layers.surgical import SurgicalNorm

__all__ = [
    "NormConfig",
    "NormVariant",
    "Phase",
    "always_identical",
    "no_objection",
    "norms",
    "norms_with",
    "option",
    "register",
]


class Phase(StrEnum):
    """A part of a layer's behaviour. Rewrites of different phases compose."""

    TRAINING = "training"
    INFERENCE = "inference"
    CORRECTION = "correction"
    """Of the running statistics at inference, before anything is mixed into them."""
    BRANCHES = "branches"


@dataclass(frozen=True)
class NormVariant(Entry[NormConfig]):
    """One registered rewrite.

    `install` puts the behaviour into a layer; `objection` returns why a layer cannot take it, or
    nothing. `identity` gives the options at which a converted layer must equal the original in
    evaluation (what it leaves out may have any value), or None where no such setting exists. A
    rewrite with parameters of its own may be equal only until they are trained (`trains_away`).
    A converted layer keeps the original's names in its state; only a rewrite that says so adds others
    (`adds_state`).
    """

    noun = "rewrite"
    listed = "norms"

    version: int
    changes: frozenset[Phase]
    identity: Callable[[SurgicalNorm], Mapping[str, Any]] | None
    install: Callable[[SurgicalNorm, Any], None]
    objection: Callable[[SurgicalNorm, Any], str]
    trains_away: bool = False
    adds_state: bool = False

    def facts(self) -> dict[str, Any]:
        return {"changes": sorted(self.changes)}


def always_identical(norm: SurgicalNorm) -> Mapping[str, Any]:  # noqa: ARG001
    """The identity of a rewrite that leaves evaluation alone."""
    return {}


norms: Registry[NormVariant] = Registry(NormVariant.noun, "surgeon.norms", NormVariant)


def norms_with(answer: Callable[[type[NormConfig]], Any]) -> list[str]:
    """The names of the variants whose config answers a question with something."""
    return [name for name in norms if answer(norms[name].config)]


def no_objection(norm: SurgicalNorm, config: Any) -> str:  # noqa: ARG001
    return ""


def register(
    name: str,
    *,
    config: type[NormConfig],
    changes: Phase | frozenset[Phase],
    identity: Callable[[SurgicalNorm], Mapping[str, Any]] | None,
    paper: str,
    version: int = 1,
    objection: Callable[[SurgicalNorm, Any], str] = no_objection,
    trains_away: bool = False,
    adds_state: bool = False,
) -> Callable[[Callable[[SurgicalNorm, Any], None]], NormVariant]:
    """Register the decorated function, which installs a rewrite into a layer, as a variant."""

    def wrap(install: Callable[[SurgicalNorm, Any], None]) -> NormVariant:
        summary = summary_of(install, NormVariant.noun, name)
        phases = frozenset({changes}) if isinstance(changes, Phase) else changes
        variant = NormVariant(
            name, summary, paper, config, version, phases, identity, install, objection, trains_away, adds_state
        )  # fmt: skip
        return norms.register(name)(variant)

    return wrap
