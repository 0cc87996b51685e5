"""Modules that are imported when something of them is used, so that listings and help do not wait for them."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Stands for a module until something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)
