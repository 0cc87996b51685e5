"""Options of whatever is chosen by name: typed, documented, immutable; unknown keys are errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from surgeon.core.errors import SurgeonError, did_you_mean, listing
from surgeon.core.reading import shortened


class Options(BaseModel):
    """Options of one registered thing."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def option(default: Any, help: str, *, sweep: tuple[float, float] | None = None, **constraints: Any) -> Any:
    """A documented option; `sweep` gives the range over which it can be tuned without retraining."""
    return Field(default, description=help, json_schema_extra={"sweep": list(sweep)} if sweep else None, **constraints)


Config = TypeVar("Config", bound=Options)


def parse_spec(text: str) -> tuple[str, dict[str, str]]:
    """`name` or `name:key=value,key=value` as the name and the options."""
    name, _, tail = text.partition(":")
    options = {}
    for pair in filter(None, tail.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise SurgeonError(f"In {text!r}, {pair!r} is not of the form key=value.")
        options[key.strip()] = value.strip()
    return name.strip(), options


def configure(kind: str, name: str, config: type[Config], given: Mapping[str, Any], listed: str) -> Config:
    """Check options and turn them into a config; every mistake is reported at once."""
    fields = config.model_fields
    unknown = [key for key in given if key not in fields]
    if unknown:
        hint = did_you_mean(unknown[0], fields) or f"Options of {name}: {listing(fields)}."
        raise SurgeonError(f"The {kind} {name!r} has no option {listing(map(shortened, unknown))}.", hint)
    try:
        return config.model_validate(dict(given))
    except ValidationError as error:
        # Of an option with several types, the first is the one that people mean.
        first = {
            ".".join(map(str, e["loc"][:1])): e["msg"].removeprefix("Value error, ") for e in reversed(error.errors())
        }
        problems = (
            f"{key}={shortened(given.get(key))}: {message}" if key else message for key, message in first.items()
        )
        raise SurgeonError(
            f"The {kind} {name!r} cannot take {'; '.join(sorted(problems))}.",
            f"See `surgeon ls {listed}` for what each option means.",
        ) from None
