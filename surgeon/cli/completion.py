"""Names that the shell completes and `--help` lists, found without importing torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from surgeon.commands.listing import REGISTRIES, sweepable
from surgeon.core.errors import PluginWarning

_TARGETS = ("timm", "onnx", "torch-export")
_ENGINES = ("torch", "onnxruntime")


def _registered(kind: str) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return _starting_with(incomplete, REGISTRIES[kind].registry)

    return complete


norms, inserts, augments = map(_registered, ("norms", "inserts", "augments"))
metrics, views, conditions, losses = map(_registered, ("metrics", "views", "conditions", "losses"))


def previewed(incomplete: str) -> list[str]:
    """Augmentations and conditions; some of both are called the same."""
    return sorted({*augments(incomplete), *conditions(incomplete)})


def models(incomplete: str) -> list[str]:
    """Architectures; where none matches, the shell offers files and folders."""
    from surgeon.models.names import all_model_names

    return _starting_with(incomplete, all_model_names())


def recipes(incomplete: str) -> list[str]:
    from surgeon.training.recipe_files import shipped_recipes

    return _starting_with(incomplete, shipped_recipes())


def targets(incomplete: str) -> list[str]:
    return _starting_with(incomplete, _TARGETS)


def engines(incomplete: str) -> list[str]:
    return _starting_with(incomplete, _ENGINES)


def data(incomplete: str) -> list[str]:
    """Data sets by name; where none matches, the shell offers files and folders."""
    from surgeon.data.presets import PRESETS

    return _starting_with(incomplete, ("digits", *PRESETS))


def swept_options(incomplete: str) -> list[str]:
    """What `--sweep` takes, up to the values."""
    return _starting_with(incomplete, (f"{name}=" for name in sweepable()))


def _starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def name_choices(command: Any) -> None:
    """Put the names of what is registered where the help of a command's options says `{norms}`, `{metrics}`, …"""
    for parameter in command.params:
        for kind in REGISTRIES.values():
            if (mark := f"{{{kind.name}}}") in (getattr(parameter, "help", None) or ""):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PluginWarning)  # help is about what there is
                    parameter.help = parameter.help.replace(mark, ", ".join(kind.registry))
