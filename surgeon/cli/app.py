"""The command line. Importing it imports neither torch nor timm: help answers at once."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from surgeon import __version__
from surgeon.cli import (
    affinity,
    convert,
    demo,
    ensemble,
    eval,
    export,
    finetune,
    inspect,
    ls,
    merge,
    preview,
    recipe,
    sweep,
    verify,
)
from surgeon.errors import ExitCode

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
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a curve on a terminal without its characters is no reason to fail


for command in (
    demo,
    ls,
    inspect,
    convert,
    eval,
    sweep,
    merge,
    preview,
    affinity,
    finetune,
    recipe,
    ensemble,
    export,
    verify,
):
    command.add_to(app)


def main() -> None:
    """Entry point of the `surgeon` command."""
    # Importing torch makes a million objects that live to the end. Searching them for garbage while
    # they are made, and taking them apart one by one at exit, takes seconds.
    gc.set_threshold(200_000)
    try:
        app()
    except KeyboardInterrupt:
        os._exit(ExitCode.INTERRUPTED)
    except SystemExit as end:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else ExitCode.DONE)


if __name__ == "__main__":
    main()
