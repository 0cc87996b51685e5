"""Named things that are added by adding a file: one folder is one registry.

A registry imports every module of its folder once, on first use, and then the modules that installed
packages name in entry points of the group that is called as the folder (`surgeon.norms`, …). A name can
be taken only once, and an unknown name is answered with the closest known ones. A module that fails is
left out with a warning: it is not what most commands are about.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from surgeon.core.errors import SurgeonError, did_you_mean, listing

T = TypeVar("T")


class PluginWarning(UserWarning):
    """An installed package wanted to add something and could not."""


@dataclass
class Plugin:
    """What an installed package has added through one entry point, or why it was left out."""

    package: str
    version: str
    module: str
    added: list[tuple[Registry[Any], str]] = field(default_factory=list)
    problem: str = ""

    @classmethod
    def of(cls, entry_point: EntryPoint) -> Plugin:
        dist = entry_point.dist
        return cls(dist.name if dist else "unknown", dist.version if dist else "", entry_point.value)

    def load(self, entry_point: EntryPoint) -> None:
        """Import the module, which registers what it has; nothing of it stays if that fails."""
        try:
            with _by(self):
                entry_point.load()
        except Exception as error:  # somebody else's code raises anything
            self.problem = _told(error)
            for registry, name in self.added:
                registry.forget(name)
            self.added.clear()
            warnings.warn(
                f"The module {self.module!r} ({entry_point.group}) of the package {self.package} {self.version} "
                f"was left out, because it cannot be loaded: {self.problem}",
                PluginWarning,
                stacklevel=2,
            )


_loading: Plugin | None = None
"""Whose module is being imported; None for our own."""


@contextmanager
def _by(plugin: Plugin | None) -> Iterator[None]:
    """What is registered meanwhile is registered by that package."""
    global _loading
    before, _loading = _loading, plugin
    try:
        yield
    finally:
        _loading = before


def _told(error: Exception) -> str:
    line = next(iter(str(error).strip().splitlines()), "no message")
    return line if isinstance(error, SurgeonError) else f"{type(error).__name__}: {line.rstrip('.')}."


class Registry(Generic[T]):
    """Maps names to things of one kind, discovered in one package and in entry points."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._entries: dict[str, T] = {}
        self._plugins: list[Plugin] = []
        self._has_own = False
        self._discovered = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that files a thing under a name that nobody else has taken."""

        def file(thing: T) -> T:
            if _loading is not None:
                self._import_own()  # so that it is the package's name that is taken, not ours
            if name in self._entries:
                raise SurgeonError(f"The {self.kind} {name!r} is registered twice.")
            self._entries[name] = thing
            if _loading is not None:
                _loading.added.append((self, name))
            return thing

        return file

    def forget(self, name: str) -> None:
        """Give a name back."""
        del self._entries[name]

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """The entry points that installed packages have for this registry."""
        self._discover()
        return tuple(self._plugins)

    def __getitem__(self, name: str) -> T:
        self._discover()
        if name not in self._entries:
            known = sorted(self._entries)
            raise SurgeonError(
                f"There is no {self.kind} {name!r}.",
                did_you_mean(name, known) or f"Known: {listing(known)}.",
            )
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(sorted(self._entries))

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._entries

    def _import_own(self) -> None:
        if self._has_own:
            return
        self._has_own = True
        with _by(None):
            folder = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(folder.__path__):
                importlib.import_module(f"{self.package}.{module.name}")

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True
        self._import_own()
        for entry_point in entry_points(group=self.package):
            plugin = Plugin.of(entry_point)
            plugin.load(entry_point)
            self._plugins.append(plugin)
