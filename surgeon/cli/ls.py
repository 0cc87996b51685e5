"""`surgeon ls`: what there is to choose from, without importing torch."""

from __future__ import annotations

import json
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import output
from surgeon.cli.options import Json
from surgeon.errors import SurgeonError, count


class Kind(StrEnum):
    NORMS = "norms"
    MODELS = "models"


def add_to(app: typer.Typer) -> None:
    app.command("ls")(output.reporting_errors(ls))


def ls(
    kind: Annotated[Kind, typer.Argument(metavar="norms|models", help="What to list.")],
    pattern: Annotated[
        str | None, typer.Argument(metavar="[PATTERN]", help="Only names that match, e.g. 'resnet*'.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the rewrites with their options, or the models."""
    if kind is Kind.NORMS:
        _list_norms(pattern, as_json)
    else:
        _list_models(pattern, as_json)


def _matching(names: list[str], pattern: str | None) -> list[str]:
    matches = [name for name in names if pattern is None or fnmatchcase(name, pattern)]
    if not matches:
        raise SurgeonError(f"Nothing matches {pattern!r}.", "Patterns are globs, e.g. '*resnet*'.")
    return matches


def _list_norms(pattern: str | None, as_json: bool) -> None:
    from surgeon.norms import norms

    variants = [norms[name] for name in _matching(list(norms), pattern)]
    if as_json:
        documents = [
            {
                "name": variant.name,
                "summary": variant.summary,
                "paper": variant.paper,
                "changes": sorted(variant.changes),
                "options": _options(variant.config.model_json_schema()),
            }
            for variant in variants
        ]
        output.emit_json(json.dumps(documents, indent=2))
        return
    table = Table(title="Rewrites, used as --bn name:key=value", title_justify="left", show_lines=True)
    for column in ("name", "what it does", "options (default)", "changes", "paper"):
        table.add_column(column, overflow="fold")
    for variant in variants:
        options = _options(variant.config.model_json_schema())
        table.add_row(
            f"[bold]{variant.name}[/]",
            escape(variant.summary),
            "\n".join(f"[cyan]{o['name']}[/] ({o['default']}): {escape(o['help'])}" for o in options),
            ", ".join(sorted(variant.changes)),
            escape(variant.paper),
        )
    output.show(table)
    output.say("Rewrites that change different phases compose: --bn ghost:size=16 --bn example-weighted:alpha=0.05")


def _options(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "default": field.get("default"),
            "help": field.get("description", ""),
            "sweep": field.get("sweep"),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _list_models(pattern: str | None, as_json: bool) -> None:
    from surgeon.models.catalog import CATALOG
    from surgeon.models.names import all_model_names, architecture_names

    if pattern is not None or as_json:
        names = _matching(all_model_names(), pattern)
        if as_json:
            output.emit_json(json.dumps(names, indent=2))
        else:
            output.emit_lines(names)
        return
    table = Table(title="Models", title_justify="left")
    table.add_column("MODEL")
    table.add_column("what")
    for name, entry in CATALOG.items():
        table.add_row(name, escape(entry.summary))
    timm, torchvision = (len(architecture_names(library)) for library in ("timm", "torchvision"))
    table.add_row("NAME or NAME.TAG", f"{count(timm, 'architecture')} of timm: surgeon ls models 'resnet*'")
    table.add_row("torchvision:NAME", f"{count(torchvision, 'architecture')}: surgeon ls models 'torchvision:*'")
    table.add_row("hf-hub:OWNER/NAME", "a timm model on the Hugging Face hub")
    table.add_row("FOLDER", "a surgeon checkpoint, or a timm model (also local-dir:FOLDER)")
    output.show(table)
