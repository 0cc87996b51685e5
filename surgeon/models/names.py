"""The names of all known architectures, read from the libraries' sources without importing them."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from surgeon.core.errors import SurgeonError, did_you_mean
from surgeon.models.catalog import CATALOG

_REGISTERED = re.compile(r"^@register_model(?:\(name=\"(\w+)\"\)|\b).*?^def (\w+)", re.MULTILINE | re.DOTALL)


@cache
def architecture_names(library: str) -> list[str]:
    """Names that a library ('timm' or 'torchvision') registers, sorted."""
    return sorted({name for names, _ in registered_in(library) for name in names})


def registered_in(library: str) -> Iterator[tuple[list[str], str]]:
    """The names that each source file of a library registers, and the text of the file."""
    spec = importlib.util.find_spec(library)
    if spec is None or not spec.submodule_search_locations:
        return
    for file in Path(spec.submodule_search_locations[0], "models").rglob("*.py"):
        text = file.read_text("utf-8")
        yield [name or function for name, function in _REGISTERED.findall(text)], text


def check_model_name(name: str) -> None:
    """Refuse a MODEL that nothing can build, with the closest names."""
    if name.startswith(("hf-hub:", "hf_hub:", "local-dir:")) or name in CATALOG or Path(name).is_dir():
        return
    library, _, architecture = name.rpartition(":")
    if library == "torchvision" and architecture in architecture_names("torchvision"):
        return
    if not library and architecture.split(".")[0] in architecture_names("timm"):
        return
    if Path(name).is_file():
        from surgeon.models.guessing import weights_as_model  # which builds networks

        raise weights_as_model(name)
    if os.sep in name or name.startswith("."):
        raise SurgeonError(f"There is no folder {name!r}.", "MODEL is an architecture's name or a checkpoint folder.")
    close = did_you_mean(name, all_model_names()) or did_you_mean(architecture, all_model_names())
    raise SurgeonError(f"There is no model {name!r}.", close or "List them with `surgeon ls models PATTERN`.")


def all_model_names() -> list[str]:
    """Every name that MODEL can be, apart from folders, tags and hub addresses."""
    torchvision = (f"torchvision:{name}" for name in architecture_names("torchvision"))
    return [*CATALOG, *architecture_names("timm"), *torchvision]
