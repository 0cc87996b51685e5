"""`surgeon card`: the model card of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from surgeon.cli import output
from surgeon.cli.frame import Answer, add_command
from surgeon.cli.options import Checkpoint
from surgeon.core.errors import SurgeonError


def add_to(app: typer.Typer) -> None:
    add_command(app, card)


def card(
    checkpoint: Checkpoint,
    path: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead, e.g. CKPT/README.md."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> Answer:
    """Print the model card of a checkpoint, made from its record, or write it to a file."""
    if not checkpoint.is_dir():
        raise SurgeonError(f"There is no checkpoint folder {str(checkpoint)!r}.")
    if path is not None and path.exists() and not (overwrite and path.is_file()):
        raise SurgeonError(f"{path} already exists.", "Pass --overwrite to replace a file.")
    with output.working(f"Reading {checkpoint}…"):
        from surgeon.commands.publish import card_of
        from surgeon.core.atomic import check_destination, staged

        result = card_of(checkpoint)
    if path is not None:
        check_destination(path.parent, overwrite=True)
        with staged(path.parent, [path.name]) as stage:
            (stage / path.name).write_text(result.text, encoding="utf-8")
        output.say(f"Written to {escape(str(path))}")
    return Answer(result, lambda: None if path is not None else output.emit_lines([result.text.rstrip()]))
