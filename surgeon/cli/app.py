"""The command line. Importing it imports neither torch nor timm: help answers at once."""

from __future__ import annotations

import atexit
import gc
import os
import platform
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from surgeon import __version__
from surgeon.cli import (
    affinity,
    card,
    convert,
    demo,
    doctor,
    ensemble,
    eval,
    export,
    finetune,
    inspect,
    ls,
    merge,
    preview,
    push,
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
        from surgeon.versions import kernels_file, version_of

        typer.echo(f"surgeon {__version__}")
        typer.echo(f"python {platform.python_version()}")
        for library in ("torch", "torchvision", "timm"):
            typer.echo(f"{library} {version_of(library) or 'not installed'}")
        typer.echo(f"compiled kernels {'installed' if kernels_file() else 'not installed'}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the versions.")
    ] = False,
) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a curve on a terminal without its characters is no reason to fail


COMMANDS = (
    demo, ls, inspect, convert, eval, sweep, merge, preview, affinity, finetune, recipe, ensemble, export, verify,
    card, push, doctor,
)  # fmt: skip
for command in COMMANDS:
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
