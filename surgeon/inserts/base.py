"""What an insert is: a unit of its own that features pass through at some sites of a network.

As for norms, the files beside this one import torch only inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from surgeon.core.entry import Entry, summary_of
from surgeon.core.registry import Registry
from surgeon.core.specs import Options, option

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PREFIX", "Effect", "Insert", "InsertConfig", "aliases", "inserts", "option", "register"]

PREFIX = "inserted_"
"""How the names of inserted units begin, under the module they were put into."""

RESIDUAL = "residual"
"""The site that stands for every residual addition."""

SITES = "stem, stage1, stage2, …, residual (after every residual addition), image (the input), or a module's name."


class Effect(StrEnum):
    """What a fresh unit does to evaluation, and what may become of that."""

    NONE = "none"
    AFTER_TRAINING = "after training"
    AT_ONCE = "at once"


class InsertConfig(Options):
    """Options of one insert; every insert says where it goes by default."""

    site: str = option("stem", f"Where: {SITES}")


@dataclass(frozen=True)
class Insert(Entry[InsertConfig]):
    """One registered unit.

    `build` makes a unit for features of so many channels (None where that is not known, which only
    an insert with `learns` false accepts). `objection` returns why features of a shape cannot pass
    through it, or nothing. `join` is given all units of a network, once they are in their places.
    """

    noun = "insert"
    listed = "inserts"

    version: int
    build: Callable[[int | None, Any], nn.Module]
    effect: Callable[[Any], Effect]
    objection: Callable[[tuple[int, ...], Any], str]
    join: Callable[[nn.Module, Sequence[nn.Module]], None]
    learns: bool
    single: bool
    """A network takes only one such unit."""
    aliases: Mapping[str, Mapping[str, Any]]
    """Names under which it is also accepted as a rewrite, with the options that they stand for."""

    def facts(self) -> dict[str, Any]:
        return {"evaluation changes": self.effect(self.config()).value, "aliases": sorted(self.aliases)}


inserts: Registry[Insert] = Registry(Insert.noun, "surgeon.inserts", Insert)


def aliases() -> dict[str, Insert]:
    """The rewrites that are in fact inserts, by name."""
    return {alias: inserts[name] for name in inserts for alias in inserts[name].aliases}


def _no_objection(shape: tuple[int, ...], config: Any) -> str:  # noqa: ARG001
    return ""


def _leave_apart(model: nn.Module, units: Sequence[nn.Module]) -> None:
    """Units that have nothing to do with each other."""


def register(
    name: str,
    *,
    config: type[InsertConfig],
    paper: str,
    effect: Effect | Callable[[Any], Effect],
    version: int = 1,
    objection: Callable[[tuple[int, ...], Any], str] = _no_objection,
    join: Callable[[nn.Module, Sequence[nn.Module]], None] = _leave_apart,
    learns: bool = False,
    single: bool = False,
    aliases: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[Callable[[int | None, Any], nn.Module]], Insert]:
    """Register the decorated function, which builds a unit, as an insert."""

    def wrap(build: Callable[[int | None, Any], nn.Module]) -> Insert:
        return inserts.register(name)(
            Insert(
                name=name,
                summary=summary_of(build, Insert.noun, name),
                paper=paper,
                version=version,
                config=config,
                build=build,
                effect=(lambda _: effect) if isinstance(effect, Effect) else effect,
                objection=objection,
                join=join,
                learns=learns,
                single=single,
                aliases=aliases or {},
            )
        )

    return wrap


def needs_positions(shape: tuple[int, ...], config: Any) -> str:  # noqa: ARG001
    """The objection of what takes a mean and a deviation over the positions of each channel."""
    positions = 1
    for size in shape[2:]:
        positions *= size
    return "" if positions > 1 else "has one position per channel, which has no deviation"
