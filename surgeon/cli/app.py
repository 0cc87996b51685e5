"""The command line. Importing it imports neither torch nor timm: help answers at once."""

from __future__ import annotations

import atexit
import importlib
import os
import platform
import sys
import warnings
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from surgeon import __version__
from surgeon.cli.help import show_help, with_help
from surgeon.cli.host import expand_home, set_up_process
from surgeon.core.errors import ExitCode

# Modules of this package, each with a command of its own name, in the panels and in the order of the help.
PANELS = {
    "Begin": ("demo", "ls", "inspect", "doctor"),
    "Measure and adapt, without training": (
        "recalibrate", "eval", "robustness", "sweep", "affinity", "ensemble", "predict",
    ),
    "Rewrite and train": ("convert", "merge", "preview", "finetune", "recipe", "study"),
    "Deploy": ("export", "verify", "card", "push"),
}  # fmt: skip
COMMANDS = tuple(name for names in PANELS.values() for name in names)


class LazyCommands(TyperGroup):
    """Imports the module of a command when it is asked for, so that each answers without waiting for the others."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            alone = typer.Typer()
            alone.callback()(lambda: None)
            importlib.import_module(f"surgeon.cli.{cmd_name}").add_to(alone)
            group = typer.main.get_group(alone)
            self.commands[cmd_name] = with_help(group.commands[cmd_name])
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        show_help(self, ctx, PANELS)


app = typer.Typer(
    name="surgeon",
    cls=LazyCommands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Rewrite the normalisation layers of a pretrained BatchNorm network for better predictions, mostly without "
    "retraining.",
    epilog="Start with [bold]surgeon demo[/]: offline, under a minute.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from surgeon.core.versions import kernels_file, version_of

        typer.echo(f"surgeon {__version__}")
        typer.echo(f"python {platform.python_version()}")
        for library in ("torch", "torchvision", "timm"):
            typer.echo(f"{library} {version_of(library) or 'not installed'}")
        typer.echo(f"compiled kernels {'installed' if kernels_file() else 'not installed'}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show versions.")
    ] = False,
) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a curve on a terminal without its characters is no reason to fail


def main() -> None:
    """Entry point of the `surgeon` command."""
    set_up_process()
    sys.argv[1:] = expand_home(sys.argv[1:])
    if "_SURGEON_COMPLETE" in os.environ:  # the shell asks, in the middle of a line
        warnings.simplefilter("ignore")
    try:
        app()
    except KeyboardInterrupt:
        os._exit(ExitCode.INTERRUPTED)
    except SystemExit as end:  # taking torch's objects apart one by one would take seconds
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else ExitCode.DONE)


if __name__ == "__main__":
    main()
