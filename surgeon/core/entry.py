"""What every registered thing has: a name, a sentence on what it is, its paper, and options that are checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from surgeon.core.errors import SurgeonError
from surgeon.core.specs import Config, Options, configure

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Entry(Generic[Config]):
    """One registered thing; each kind adds what it needs to do its work.

    Args:
        name: What people type.
        summary: What it does, in one sentence.
        paper: Where it is from: authors, venue and year; empty where there is none.
        config: Its options.
    """

    name: str
    summary: str
    paper: str
    config: type[Config]

    noun: ClassVar[str] = "entry"
    """What one of its kind is called in messages."""
    listed: ClassVar[str] = ""
    """What follows `surgeon ls` to list its kind."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(str(self.name)):
            raise SurgeonError(
                f"The {self.noun} {self.name!r} has a name that cannot be typed in a spec.",
                "Use lower-case letters, digits and single dashes.",
            )

    def configure(self, options: Mapping[str, Any]) -> Config:
        """Check options and turn them into a config; every mistake is reported at once."""
        return configure(self.noun, self.name, self.config, options, self.listed)

    def with_options(self, config: Options) -> str:
        """Its spec with the options that differ from their defaults: always the same text for the same options."""
        defaults = self.config()
        given = {key: value for key, value in config if value != getattr(defaults, key)}
        return self.name + (":" + ",".join(f"{key}={value}" for key, value in given.items()) if given else "")

    def facts(self) -> dict[str, Any]:
        """What a listing says of it besides summary, paper and options, as names and values."""
        return {}

    @property
    def options(self) -> list[dict[str, Any]]:
        """Every option: its name, default, help and, if it can be swept, the usual range."""
        return [
            {
                "name": name,
                "default": field.get("default"),
                "help": field.get("description", ""),
                "sweep": field.get("sweep"),
            }
            for name, field in self.config.model_json_schema().get("properties", {}).items()
        ]

    @property
    def sweepable(self) -> dict[str, tuple[float, float]]:
        """The options that can be tuned without retraining, each with its usual range."""
        return {option["name"]: tuple(option["sweep"]) for option in self.options if option["sweep"]}


def summary_of(described: Callable[..., Any], noun: str, name: str) -> str:
    """The first line of a function's docstring, which is what listings show."""
    if not (lines := (described.__doc__ or "").strip().splitlines()):
        raise SurgeonError(
            f"The {noun} {name!r} has no description.", "Give the function a docstring: its first line is shown."
        )
    return lines[0]
