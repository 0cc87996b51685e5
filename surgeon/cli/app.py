"""The command line. Importing it imports neither torch nor timm: help answers at once."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from surgeon import __version__
from surgeon.cli import convert, demo, inspect, ls, verify

app = typer.Typer(
    name="surgeon",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Rewrite the normalisation layers of a pretrained BatchNorm network, safely, mostly without retraining.",
    epilog="Start with [bold]surgeon demo[/]: offline, under a minute.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"surgeon {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


for command in (demo, ls, inspect, convert, verify):
    command.add_to(app)


def main() -> None:
    """Entry point of the `surgeon` command."""
    # Importing torch makes a million objects that live to the end: looking at them again and again
    # while they are made, and once more at exit, takes seconds.
    gc.set_threshold(200_000)
    try:
        app()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
