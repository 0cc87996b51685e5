"""What a rewrite of a normalisation layer is: a name, documented options, and what it changes.

This module and the variant files beside it import torch only inside functions, so that
`surgeon ls norms` and `--help` can read every option without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from surgeon.errors import SurgeonError, did_you_mean, listing
from surgeon.registry import Registry

if TYPE_CHECKING:
    from surgeon.layers.surgical import SurgicalNorm


class Phase(StrEnum):
    """A part of a layer's behaviour. Rewrites of different phases compose."""

    TRAINING = "training"
    INFERENCE = "inference"


class NormConfig(BaseModel):
    """Options of one variant: typed, documented, immutable; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def option(default: Any, help: str, *, sweep: tuple[float, float] | None = None, **constraints: Any) -> Any:
    """A documented option; `sweep` gives the range over which it can be tuned without retraining."""
    return Field(default, description=help, json_schema_extra={"sweep": list(sweep)} if sweep else None, **constraints)


@dataclass(frozen=True)
class NormVariant:
    """One registered rewrite.

    `install` puts the behaviour into a layer; `objection` returns why a layer cannot take it, or
    nothing. `identity` gives the options at which a converted layer must equal the original in
    evaluation (what it leaves out may have any value), or None where no such setting exists.
    """

    name: str
    summary: str
    paper: str
    version: int
    config: type[NormConfig]
    changes: frozenset[Phase]
    identity: Callable[[SurgicalNorm], Mapping[str, Any]] | None
    install: Callable[[SurgicalNorm, Any], None]
    objection: Callable[[SurgicalNorm, Any], str]

    def configure(self, options: Mapping[str, Any]) -> NormConfig:
        """Check options and turn them into a config; every mistake is reported at once."""
        fields = self.config.model_fields
        unknown = [key for key in options if key not in fields]
        if unknown:
            hint = did_you_mean(unknown[0], fields) or f"Options of {self.name}: {listing(fields)}."
            raise SurgeonError(f"The rewrite {self.name!r} has no option {listing(map(repr, unknown))}.", hint)
        try:
            return self.config.model_validate(dict(options))
        except ValidationError as error:
            # Of an option with several types, the first is the one that people mean.
            first = {str(e["loc"][0]): e["msg"] for e in reversed(error.errors())}
            problems = (f"{key}={options.get(key)!r}: {message}" for key, message in first.items())
            raise SurgeonError(
                f"The rewrite {self.name!r} cannot take {'; '.join(sorted(problems))}.",
                "See `surgeon ls norms` for what each option means.",
            ) from None


def always_identical(norm: SurgicalNorm) -> Mapping[str, Any]:  # noqa: ARG001
    """The identity of a rewrite that leaves evaluation alone."""
    return {}


norms: Registry[NormVariant] = Registry("rewrite", "surgeon.norms")


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
) -> Callable[[Callable[[SurgicalNorm, Any], None]], NormVariant]:
    """Register the decorated function, which installs a rewrite into a layer, as a variant."""

    def wrap(install: Callable[[SurgicalNorm, Any], None]) -> NormVariant:
        summary = (install.__doc__ or "").strip().splitlines()[0]
        phases = frozenset({changes}) if isinstance(changes, Phase) else changes
        variant = NormVariant(name, summary, paper, version, config, phases, identity, install, objection)
        return norms.register(name)(variant)

    return wrap
