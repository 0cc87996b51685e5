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
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from typing import Any, Generic, TypeVar

from surgeon.core.errors import PluginWarning, SurgeonError, did_you_mean, listing

T = TypeVar("T")


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
        return cls(_metadata(dist, "Name") or "unknown", _metadata(dist, "Version"), entry_point.value)

    def load(self, entry_point: EntryPoint) -> None:
        """Import the module, which registers what it has; nothing of it stays if that fails."""
        try:
            with _by(self):
                entry_point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # somebody else's code raises anything, and sys.exit() is an exception too
            self.problem = _explain(error)
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


def _explain(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "it calls sys.exit when it is imported."
    line = next(iter(str(error).strip().splitlines()), "no message")
    return line if isinstance(error, SurgeonError) else f"{type(error).__name__}: {line.rstrip('.')}."


def _entry_points(group: str) -> list[EntryPoint]:
    """What installed packages have for a registry; one whose list cannot be read does not hide the others."""
    try:
        return list(entry_points(group=group))
    except Exception:  # the library reads all of them at once, and raises what the first damaged one makes it
        found: list[EntryPoint] = []
        for distribution in distributions():
            try:
                found += distribution.entry_points.select(group=group)
            except Exception as error:
                name = _metadata(distribution, "Name") or "unknown"
                warnings.warn(
                    f"The entry points of the package {name} cannot be read and were left out: {_explain(error)}",
                    PluginWarning,
                    stacklevel=2,
                )
        return found


def _metadata(distribution: Distribution | None, field_name: str) -> str:
    """A field of a package's metadata, empty where damaged metadata lacks it."""
    if distribution is None or field_name not in distribution.metadata:
        return ""
    return str(distribution.metadata[field_name] or "")


class Registry(Generic[T]):
    """Maps names to things of one kind, discovered in one package and in entry points.

    Args:
        kind: What a thing is called in messages.
        package: Where they lie, which is also the group of the entry points.
        of: The class of the things; a package that registers another object is at fault.
        without: Modules there that register nothing and are slow to import.
    """

    def __init__(self, kind: str, package: str, of: type[Any] = object, without: Collection[str] = ()) -> None:
        self.kind = kind
        self.package = package
        self.of = of
        self.without = without
        self._entries: dict[str, T] = {}
        self._plugins: list[Plugin] = []
        self._has_own = False
        self._discovered = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that files a thing under a name that nobody else has taken."""

        def file(thing: T) -> T:
            if _loading is not None:
                self._import_own()  # so that it is the package's name that is taken, not ours
            if not isinstance(name, str) or not isinstance(thing, self.of):
                raise SurgeonError(
                    f"The {self.kind} {name!r} is a {type(thing).__name__}, not a {self.of.__name__}: "
                    f"register it with the `register` of {self.package}.base."
                )
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
                if module.name not in self.without:
                    importlib.import_module(f"{self.package}.{module.name}")

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True
        self._import_own()
        for entry_point in _entry_points(self.package):
            plugin = Plugin.of(entry_point)
            plugin.load(entry_point)
            self._plugins.append(plugin)
