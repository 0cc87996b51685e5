"""`surgeon recipe`: look at a recipe, or copy one to change it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import completion, output
from surgeon.core.errors import ExitCode, SurgeonError

app = typer.Typer(no_args_is_help=True, help="Show, copy and check fine-tuning recipes.")
Name = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A YAML file, or a name from surgeon ls recipes.", autocompletion=completion.recipes
    ),
]


def add_to(parent: typer.Typer) -> None:
    app.command("show")(output.reporting_errors(show))
    app.command("copy")(output.reporting_errors(copy))
    app.command("check")(output.reporting_errors(check))
    app.command("keys")(output.reporting_errors(keys))
    parent.add_typer(app, name="recipe")


def show(name: Name) -> None:
    """Print a recipe as it is."""
    from surgeon.training.recipe import load_recipe
    from surgeon.training.recipe_files import find_recipe, recipe_text

    load_recipe(name)
    output.emit_lines([recipe_text(find_recipe(name)).rstrip()])


def copy(
    name: Name,
    destination: Annotated[Path, typer.Argument(metavar="FILE", help="The new .yaml file.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Copy a recipe to a file, to be edited and used with --recipe FILE."""
    from surgeon.training.recipe_files import find_recipe, recipe_text

    text = recipe_text(find_recipe(name))
    if destination.suffix not in (".yaml", ".yml"):
        raise SurgeonError(f"{destination} is not a .yaml file.", f"Write {destination}.yaml.")
    if destination.exists() and not overwrite:
        raise SurgeonError(f"{destination} already exists.", "Pass --overwrite to replace it.")
    try:
        destination.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SurgeonError(f"Could not write {destination}: {error.strerror}.", exit_code=ExitCode.FAILED) from error
    output.say(f"Copied to {escape(str(destination))}: use it with --recipe {escape(str(destination))}")


def check(name: Name) -> None:
    """Check a recipe and report all its mistakes."""
    from surgeon.training.recipe import load_recipe

    load_recipe(name)
    output.say(f"{escape(name)} is a valid recipe.")


def keys() -> None:
    """List the keys of a recipe with their defaults."""
    from surgeon.training.recipe import Recipe

    table = Table(title="Keys of a recipe", title_justify="left")
    for column in ("key", "default", "what it does"):
        table.add_column(column, overflow="fold")
    for key, field in Recipe.model_fields.items():
        default = field.default if field.default not in ((), None) else "–"
        table.add_row(key, escape(str(default)), escape(field.description or ""))
    output.show(table)
