"""The names of all known architectures, read from the libraries' sources without importing them."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from surgeon.models.catalog import CATALOG

_REGISTERED = re.compile(r"^@register_model(?:\(name=\"(\w+)\"\)|\b).*?^def (\w+)", re.MULTILINE | re.DOTALL)


@cache
def architecture_names(library: str) -> list[str]:
    """Names that a library ('timm' or 'torchvision') registers, sorted."""
    spec = importlib.util.find_spec(library)
    if spec is None or not spec.submodule_search_locations:
        return []
    files = Path(spec.submodule_search_locations[0], "models").rglob("*.py")
    return sorted({name or function for f in files for name, function in _REGISTERED.findall(f.read_text("utf-8"))})


def all_model_names() -> list[str]:
    """Every name that MODEL can be, apart from folders, tags and hub addresses."""
    torchvision = (f"torchvision:{name}" for name in architecture_names("torchvision"))
    return [*CATALOG, *architecture_names("timm"), *torchvision]
