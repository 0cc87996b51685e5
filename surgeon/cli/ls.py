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
from surgeon.core.errors import SurgeonError, count


class Kind(StrEnum):
    NORMS = "norms"
    INSERTS = "inserts"
    AUGMENTS = "augments"
    MODELS = "models"
    DATASETS = "datasets"
    METRICS = "metrics"
    VIEWS = "views"
    RECIPES = "recipes"


def add_to(app: typer.Typer) -> None:
    app.command("ls")(output.reporting_errors(ls))


def ls(
    kind: Annotated[
        Kind,
        typer.Argument(metavar="norms|inserts|augments|models|datasets|metrics|views|recipes", help="What to list."),
    ],
    pattern: Annotated[
        str | None, typer.Argument(metavar="[PATTERN]", help="Only names that match, e.g. 'resnet*'.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List what there is to choose from: rewrites, inserts, augmentations, models, data, metrics, test-time views."""
    listings = {
        Kind.NORMS: _list_norms,
        Kind.INSERTS: _list_inserts,
        Kind.AUGMENTS: _list_augments,
        Kind.MODELS: _list_models,
        Kind.DATASETS: _list_datasets,
        Kind.METRICS: _list_metrics,
        Kind.VIEWS: _list_views,
        Kind.RECIPES: _list_recipes,
    }
    listings[kind](pattern, as_json)


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


def _list_inserts(pattern: str | None, as_json: bool) -> None:
    from surgeon.inserts import inserts

    found = [inserts[name] for name in _matching(list(inserts), pattern)]
    documents: list[dict[str, Any]] = [
        {
            "name": insert.name,
            "summary": insert.summary,
            "paper": insert.paper,
            "evaluation changes": insert.effect(insert.config()),
            "aliases": sorted(insert.aliases),
            "options": _options(insert.config.model_json_schema()),
        }
        for insert in found
    ]
    if as_json:
        output.emit_json(json.dumps(documents, indent=2))
        return
    table = Table(title="Inserts, used as --insert name:key=value", title_justify="left", show_lines=True)
    for column in ("name", "what it does", "options (default)", "evaluation changes", "paper"):
        table.add_column(column, overflow="fold")
    for document in documents:
        table.add_row(
            f"[bold]{document['name']}[/]",
            escape(document["summary"]),
            "\n".join(f"[cyan]{o['name']}[/] ({o['default']}): {escape(o['help'])}" for o in document["options"]),
            {"none": "never"}.get(document["evaluation changes"], document["evaluation changes"]),
            escape(document["paper"]),
        )
    output.show(table)
    output.say("site= is stem, stage2, residual, image, or a module's name. --bn pono-moex is --insert moex.")


def _list_augments(pattern: str | None, as_json: bool) -> None:
    from surgeon.augment.base import augments

    found = [augments[name] for name in _matching(list(augments), pattern)]
    documents: list[dict[str, Any]] = [
        {
            "name": augment.name,
            "summary": augment.summary,
            "kind": augment.kind.value,
            "paper": augment.paper,
            "options": _options(augment.config.model_json_schema()),
        }
        for augment in found
    ]
    if as_json:
        output.emit_json(json.dumps(documents, indent=2))
        return
    table = Table(title="Augmentations, written name:key=value", title_justify="left", show_lines=True)
    for column in ("name", "what it does", "options (default)", "works on", "paper"):
        table.add_column(column, overflow="fold")
    for document in documents:
        table.add_row(
            f"[bold]{document['name']}[/]",
            escape(document["summary"]),
            "\n".join(f"[cyan]{o['name']}[/] ({o['default']}): {escape(o['help'])}" for o in document["options"]),
            _WORKS_ON[document["kind"]],
            escape(document["paper"]),
        )
    output.show(table)
    output.say("Look at one: surgeon preview NAME --data digits. Measure how far they are: surgeon affinity.")


_WORKS_ON = {
    "geometry": "picture: the crop",
    "image": "image",
    "batch": "batch",
    "mix": "batch and labels",
    "policy": "stands for several",
}


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
    table.add_row("hf-hub:OWNER/NAME", "a timm model or a surgeon checkpoint on the Hugging Face hub")
    table.add_row("FOLDER", "a surgeon checkpoint, or a timm model (also local-dir:FOLDER)")
    output.show(table)


def _list_datasets(pattern: str | None, as_json: bool) -> None:
    from surgeon.data.presets import PRESETS

    documents: list[dict[str, Any]] = [
        {"name": "digits", "what": "1,797 handwritten digits of 8 pixels, bundled", "on the hub": None}
    ]
    documents += [{"name": p.name, "what": p.summary, "on the hub": p.hub} for p in PRESETS.values()]
    _list_simply("Data sets, used as --data NAME", documents, pattern, as_json)
    if not as_json:
        output.say(
            "--data also takes hf:OWNER/NAME[:CONFIG], an image folder, Parquet files or a saved datasets folder."
        )


def _list_metrics(pattern: str | None, as_json: bool) -> None:
    from surgeon.metrics import metrics

    found = [metrics[name] for name in metrics]
    documents = [
        {"name": m.name, "what": m.summary, "better": "higher" if m.higher_is_better else "lower"} for m in found
    ]
    _list_simply("Metrics, used as --metric NAME", documents, pattern, as_json)


def _list_views(pattern: str | None, as_json: bool) -> None:
    from surgeon.views import views

    documents = [{"name": name, "what": views[name].summary, "views": views[name].count} for name in views]
    _list_simply("Test-time augmentation, used as --tta NAME", documents, pattern, as_json)


def _list_recipes(pattern: str | None, as_json: bool) -> None:
    from surgeon.training.recipe import header_of, shipped_recipes

    headers = {name: header_of(path) for name, path in shipped_recipes().items()}
    documents = [
        {"name": name, "what": h.summary, "expected": h.expected, "run": h.command} for name, h in headers.items()
    ]
    if not as_json:
        documents = [{key: each[key] for key in ("name", "what")} for each in documents]
    _list_simply("Recipes, used as --recipe NAME; see `surgeon recipe show NAME`", documents, pattern, as_json)


def _list_simply(title: str, documents: list[dict[str, Any]], pattern: str | None, as_json: bool) -> None:
    wanted = _matching([document["name"] for document in documents], pattern)
    documents = [document for document in documents if document["name"] in wanted]
    if as_json:
        output.emit_json(json.dumps(documents, indent=2))
        return
    table = Table(title=title, title_justify="left")
    for column in documents[0]:
        table.add_column(column, overflow="fold")
    for document in documents:
        table.add_row(*(escape(str(value)) if value is not None else "" for value in document.values()))
    output.show(table)
