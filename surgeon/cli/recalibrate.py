"""`surgeon recalibrate`: statistics of the images that a network really sees, without labels."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import options, output
from surgeon.cli.frame import Answer, add_command, loading, tell_measured, tell_report
from surgeon.cli.groups import InferenceImages, Opening
from surgeon.core.atomic import check_destination
from surgeon.core.errors import SurgeonError, count

if TYPE_CHECKING:
    from surgeon.results import Recalibration
    from surgeon.surgery.recalibration import Reestimation

LAYERS_SHOWN = 12
ENTROPY = "Entropy minimisation (Tent)"


def add_to(app: typer.Typer) -> None:
    add_command(app, recalibrate)


def recalibrate(
    model: options.Model,
    data: options.Data,
    prior: Annotated[
        str,
        typer.Option(
            "--prior",
            metavar="N",
            help="Weight of the old statistics, as a number of images: 0 discards them, inf keeps them.",
        ),
    ] = "1024",
    layers: Annotated[
        str | None, typer.Option("--layers", metavar="SELECTOR", help="Only these layers: stem, 'layer[12].*'…")
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Estimate on one half of the images, measure on the other with labels.")
    ] = False,
    tent: Annotated[
        bool,
        typer.Option(
            "--tent",
            help="Then minimise the entropy of the predictions over gamma and beta.",
            rich_help_panel=ENTROPY,
        ),
    ] = False,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", metavar="N", min=1, help="Epochs. Default: 5.", rich_help_panel=ENTROPY),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option("--lr", metavar="RATE", help="Learning rate. Default: 0.001.", rich_help_panel=ENTROPY),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="DATA", help="Also measure the cost on labelled images of the original domain."
        ),
    ] = None,
    save_logits: Annotated[
        Path | None,
        typer.Option(
            "--save-logits",
            metavar="FILE",
            help="With --confirm: write logits, labels and indices of all images. Each half is predicted by the "
            "network adapted to the other.",
        ),
    ] = None,
    collect: Annotated[
        bool,
        typer.Option(
            "--collect",
            help="Instead, collect statistics for layers that have none (GroupNorm), for a later sweep of alpha.",
        ),
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for the checkpoint and its report.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing checkpoint.")] = False,
    *,
    images: InferenceImages,
    opening: Opening,
) -> Answer:
    """Adapt a network to new images: re-estimate BatchNorm statistics without labels, and report what changes."""
    from surgeon.models.names import check_model_name

    check_model_name(model)
    number = _prior(prior)
    if not tent and (epochs, lr) != (None, None):
        raise SurgeonError(f"{'--lr' if epochs is None else '--epochs'} is for --tent, which is not given.")
    if lr is not None and not 0 < lr < float("inf"):
        raise SurgeonError(f"--lr cannot be {lr:g}.", "It is a number above 0; 0.001 is usual.")
    if save_logits is not None and not confirm:
        raise SurgeonError("--save-logits saves the predictions that --confirm measures: add --confirm.")
    if collect and tent:
        raise SurgeonError(
            "--collect only adds statistics, but --tent changes gamma and beta.", "Run them one after the other."
        )
    if collect and number != _prior("1024"):
        raise SurgeonError("--prior weights old statistics, but --collect is for layers that have none.")
    with loading():
        from surgeon.commands.recalibrate.operation import EntropyRequest, RecalibrationRequest, run_recalibration
        from surgeon.surgery.entropy import EPOCHS, RATE
    request = RecalibrationRequest(
        task=images.request(data),
        prior=number,
        layers=layers,
        confirm=confirm,
        collect=collect,
        tent=EntropyRequest(epochs or EPOCHS, lr or RATE) if tent else None,
        source=source,
        save_logits=save_logits,
        output=folder,
        overwrite=overwrite,
    )
    if folder is not None:
        check_destination(folder, overwrite)
    loaded = opening.open(model)
    with output.progress_bar("images/s") as bar:
        result = run_recalibration(loaded, request, bar)
    return Answer(result, partial(_describe, result, folder))


def _prior(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise SurgeonError(f"--prior cannot be {text!r}.", "It is a number of images: 0, more, or inf.")
    return number


def _describe(result: Recalibration, folder: Path | None) -> None:
    tell(result)
    if folder is None:
        output.say("Pass -o DIR to keep the recalibrated network.")
        return
    output.say(f"Checkpoint: {escape(str(folder))}")
    tell_report(folder / "report", *(["recalibration.png"] if result.layers else []))


def tell_reestimation(result: Reestimation) -> None:
    """What `surgeon.recalibrate` did."""
    output.say(
        f"The statistics of {count(len(result.layers), 'layer')} were estimated from {count(result.images, 'image')}, "
        f"with a weight of {result.weight:.1%} (prior {result.prior:g} images)."
    )
    output.show(_table(result))


def tell(result: Recalibration) -> None:
    """What became of the statistics, and what that changes."""
    from surgeon.report.recalibration import in_sentences

    where = " and ".join(result.where)
    tell_measured(result, result.model, [result.preprocessing], ("rewrites", result.rewrites), ("where", where))
    if result.layers:
        output.show(_table(result))
    for sentence in in_sentences(result):
        output.say(f"• {escape(sentence)}")
    output.say(
        f"[dim]{result.seconds:.1f} s on {result.device}, {result.seconds_estimating:.1f} s of it to estimate[/]"
    )


def _table(result: Recalibration | Reestimation) -> Table:
    """The layers that moved most; all of them are in the report."""
    moved = sorted(result.layers, key=lambda layer: -layer.mean_shift)[:LAYERS_SHOWN]
    few = f"{len(moved)} of {len(result.layers)} layers, by depth" if len(moved) < len(result.layers) else "Layers"
    table = Table(title=f"{few}: movement in old standard deviations", title_justify="left")
    table.add_column("layer", overflow="fold")
    for heading in ("mean shift", "largest", "deviations, new / old"):
        table.add_column(heading, justify="right")
    for layer in (layer for layer in result.layers if layer in moved):
        table.add_row(
            escape(layer.layer), f"{layer.mean_shift:.3f}", f"{layer.largest_shift:.3f}", f"{layer.deviation_ratio:.3f}"
        )
    return table
