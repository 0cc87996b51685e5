"""`surgeon demo`: the main job on the bundled model and data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surgeon.cli import output
from surgeon.cli.frame import Answer, add_command, loading
from surgeon.cli.sweep import describe


def add_to(app: typer.Typer) -> None:
    add_command(app, demo)


def demo(
    folder: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the report and the checkpoint.")
    ] = Path("surgeon-demo"),
) -> Answer:
    """Sweep alpha on the bundled network and confirm the choice on test images: offline, under a minute."""
    with loading():
        from surgeon.commands.demo import COMMAND, run_demo
    with output.progress_bar("batches/s") as bar:
        result = run_demo(folder, bar)

    def tell() -> None:
        describe(result, folder)
        output.say(f"\nThis was: [bold]{COMMAND} -o {folder}[/]")
        output.say("Next, your own model: surgeon convert resnet50 --bn example-weighted, then surgeon sweep")

    return Answer(result, tell)
