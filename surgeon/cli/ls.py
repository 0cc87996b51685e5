"""`surgeon ls`: what there is to choose from, without importing torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import output
from surgeon.cli.options import Json
from surgeon.commands.listing import REGISTRIES, ListedRegistry, documents, matching
from surgeon.core.errors import SurgeonError, count, did_you_mean, listing

_ONCE_CALLED = {"metrics": "what", "views": "what"}
"""The summaries of these have another name in JSON as well, which programs may go by."""


def add_to(app: typer.Typer) -> None:
    app.command("ls")(output.reporting_errors(ls))


def ls(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="|".join(_words()),
            help="What to list.",
            autocompletion=lambda incomplete: [word for word in _words() if word.startswith(incomplete)],
        ),
    ],
    pattern: Annotated[
        str | None, typer.Argument(metavar="[PATTERN]", help="Only matching names: 'resnet*', cifar…")
    ] = None,
    as_json: Json = False,
) -> None:
    """List rewrites, inserts, augmentations, losses, models, datasets, metrics, TTA views, conditions or recipes."""
    if kind in REGISTRIES:
        _list_registered(REGISTRIES[kind], pattern, as_json)
    elif kind in _OTHERS:
        _OTHERS[kind](pattern, as_json)
    else:
        known = _words()
        raise SurgeonError(
            f"Nothing is listed under {kind!r}.", did_you_mean(kind, known) or f"Known: {listing(known)}."
        )


def _words() -> list[str]:
    return [*REGISTRIES, *_OTHERS]


def _list_registered(kind: ListedRegistry, pattern: str | None, as_json: bool) -> None:
    found = documents(kind, pattern)
    if as_json:
        for each in found:
            each |= {_ONCE_CALLED[kind.name]: each["summary"]} if kind.name in _ONCE_CALLED else {}
        output.emit_json(json.dumps(found, indent=2))
        return
    spec = "name:key=value" if any(each["options"] for each in found) else "NAME"
    table = Table(title=f"{kind.title}, used as {kind.option} {spec}", title_justify="left", show_lines=True)
    facts = [key for key in found[0] if key not in ("name", "summary", "paper", "options")]
    columns = {"name": "name", "summary": "what it does", "options": "options (default)"}
    columns |= {key: key for key in facts} | {"paper": "paper"}
    shown = [key for key in columns if any(each[key] for each in found)]
    if output.narrow() and "paper" in shown:
        shown.remove("paper")
        found = [
            each | {"summary": f"{each['summary']} ({each['paper']})"} if each["paper"] else each for each in found
        ]
    for key in shown:
        table.add_column(columns[key], overflow="fold", no_wrap=key == "name")
    for each in found:
        table.add_row(*(_cell(key, each[key]) for key in shown))
    output.show(table)
    if kind.advice:
        output.say(kind.advice)


def _cell(key: str, value: Any) -> str:
    if key == "name":
        return f"[bold]{value}[/]"
    if key == "options":
        return "\n".join(f"[cyan]{o['name']}[/] ({o['default']}): {escape(o['help'])}" for o in value)
    return escape(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def _list_models(pattern: str | None, as_json: bool) -> None:
    from surgeon.models.catalog import CATALOG
    from surgeon.models.names import all_model_names, architecture_names

    if pattern is not None or as_json:
        names = matching(all_model_names(), pattern)
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
        {"name": "digits", "what": "1,797 handwritten digits of 8x8 pixels, bundled", "on the hub": None}
    ]
    documents += [{"name": p.name, "what": p.summary, "on the hub": p.hub} for p in PRESETS.values()]
    _list_simply("Data sets, used as --data NAME", documents, pattern, as_json)
    if not as_json:
        output.say(
            "--data also takes hf:OWNER/NAME[:CONFIG], an image folder, Parquet files, a saved datasets folder, and "
            "several of these as one: union:mnist+cifar10."
        )


def _list_recipes(pattern: str | None, as_json: bool) -> None:
    from surgeon.training.recipe_files import header_of, shipped_recipes

    headers = {name: header_of(path) for name, path in shipped_recipes().items()}
    documents = [
        {"name": name, "what": h.summary, "expected": h.expected, "run": h.command} for name, h in headers.items()
    ]
    if not as_json:
        documents = [{key: each[key] for key in ("name", "what")} for each in documents]
    _list_simply("Recipes, used as --recipe NAME; see `surgeon recipe show NAME`", documents, pattern, as_json)


def _list_simply(title: str, documents: list[dict[str, Any]], pattern: str | None, as_json: bool) -> None:
    wanted = matching([document["name"] for document in documents], pattern)
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


_OTHERS: dict[str, Callable[[str | None, bool], None]] = {
    "models": _list_models,
    "datasets": _list_datasets,
    "recipes": _list_recipes,
}
