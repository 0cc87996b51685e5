"""Names that the shell completes, found without importing torch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_TARGETS = ("timm", "onnx", "torch-export")
_PRESET = re.compile(r"^    Preset\(\s*\"([\w-]+)\"", re.MULTILINE)
_REGISTERED = re.compile(r"^@register\(\s*\"([\w-]+)\"", re.MULTILINE)


def models(incomplete: str) -> list[str]:
    """Architectures; where none matches, the shell offers files and folders."""
    from surgeon.models.names import all_model_names

    return _starting_with(incomplete, all_model_names())


def norms(incomplete: str) -> list[str]:
    from surgeon.norms import norms as known

    return _starting_with(incomplete, known)


def inserts(incomplete: str) -> list[str]:
    from surgeon.inserts import inserts as known

    return _starting_with(incomplete, known)


def augments(incomplete: str) -> list[str]:
    from surgeon.augment.base import augments as known

    return _starting_with(incomplete, known)


def recipes(incomplete: str) -> list[str]:
    from surgeon.training.recipe import shipped_recipes

    return _starting_with(incomplete, shipped_recipes())


def views(incomplete: str) -> list[str]:
    return _starting_with(incomplete, _registered_in("views"))


def metrics(incomplete: str) -> list[str]:
    return _starting_with(incomplete, _registered_in("metrics"))


def targets(incomplete: str) -> list[str]:
    return _starting_with(incomplete, _TARGETS)


def data(incomplete: str) -> list[str]:
    """Data sets by name; where none matches, the shell offers files and folders."""
    presets = (_PACKAGE / "data" / "presets.py").read_text("utf-8")
    return _starting_with(incomplete, ("digits", *_PRESET.findall(presets)))


def _starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _registered_in(package: str) -> list[str]:
    """What the files of a package register: importing those would import torch."""
    files = (_PACKAGE / package).glob("*.py")
    return sorted(name for file in files for name in _REGISTERED.findall(file.read_text("utf-8")))
