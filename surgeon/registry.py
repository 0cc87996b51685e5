"""Named things that are added by adding a file: one folder is one registry.

A registry imports every module of its folder once, on first use, and then the entry points of
installed packages. A name can be taken only once, and an unknown name is answered with the
closest known ones.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from surgeon.errors import SurgeonError, did_you_mean, listing

T = TypeVar("T")


class Registry(Generic[T]):
    """Maps names to things of one kind, discovered in one package and in entry points."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._entries: dict[str, T] = {}
        self._discovered = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that files a thing under a name that nobody else has taken."""

        def file(thing: T) -> T:
            if name in self._entries:
                raise SurgeonError(f"The {self.kind} {name!r} is registered twice.")
            self._entries[name] = thing
            return thing

        return file

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

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True
        folder = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(folder.__path__):
            importlib.import_module(f"{self.package}.{module.name}")
        for entry_point in entry_points(group=self.package):
            entry_point.load()
