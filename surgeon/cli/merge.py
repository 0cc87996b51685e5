"""`surgeon merge`: one branch out of two."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from surgeon.cli import completion, output
from surgeon.cli.options import Limit, Split
from surgeon.core.atomic import check_destination
from surgeon.report.wording import figure, gain_text

if TYPE_CHECKING:
    from surgeon.results import Merging
from surgeon.cli.frame import Answer, add_command, loading


def add_to(app: typer.Typer) -> None:
    add_command(app, merge)


def merge(
    model: Annotated[str, typer.Argument(metavar="CKPT", help="Checkpoint folder of a split network.")],
    share: Annotated[
        float | None,
        typer.Option("--lambda", metavar="X", help="Share of the auxiliary branch. Default: the stored one, else 0.5."),
    ] = None,
    destination: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Folder for the checkpoint. Default: ./CKPT-merged."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DATA",
            help="Also measure on these images what merging costs.",
            autocompletion=completion.data,
        ),
    ] = None,
    split: Split = None,
    limit: Limit = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing checkpoint.")] = False,
) -> Answer:
    """Merge both branches of a split network into one plain BatchNorm: half the inference time."""
    folder = destination or Path(f"{Path(model).name}-merged")
    with loading():
        from surgeon import checkpoint
        from surgeon.commands.merge import run_merging
        from surgeon.data.opening import check_data
        from surgeon.measuring.preparation import InferenceRequest
    check_destination(folder, overwrite)
    if data is not None:
        check_data(data)
    with output.working(f"Opening {model}…"):
        loaded = checkpoint.open_model(model)
    request = InferenceRequest(data=data, split=split, limit=limit) if data is not None else None
    with output.progress_bar("images/s") as bar:
        result = run_merging(loaded, share, folder, overwrite=overwrite, request=request, progress=bar)
    return Answer(result, partial(tell, result))


def tell(result: Merging) -> None:
    """What people are told."""
    output.say(f"[bold]{escape(result.model)}[/]: {result.layers} layers merged at lambda {result.share:g}")
    if result.probability_shift is not None:
        output.say(f"  on random images  probabilities within {result.probability_shift:.2g} of two passes' average")
    if result.merged is not None and result.two_passes is not None:
        for gain in result.gains:
            before, after = (figure(gain.metric, m.value(gain.metric)) for m in (result.two_passes, result.merged))
            output.say(f"  {gain.metric:<22}{before} by two passes, {after} merged: gain {gain_text(gain)}")
    for note in result.notes:
        output.say(f"  [yellow]note[/]              {escape(note)}")
    output.say("  written to:")
    output.emit_lines([result.output])
