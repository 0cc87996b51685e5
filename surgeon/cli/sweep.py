"""`surgeon sweep`: the best setting without retraining, and whether its gain is real."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from surgeon.cli import columns, completion, options, output
from surgeon.cli.frame import Answer, add_command, loading, tell_measured, tell_report
from surgeon.cli.groups import ChoosingImages, Opening
from surgeon.cli.sweep_tables import table_of_pairs, table_of_points, table_of_settings
from surgeon.core.errors import SurgeonError, count, listing

if TYPE_CHECKING:
    from surgeon.results import Sweep

SWEPT, CHOICE, KEPT = "What to sweep", "How to choose", "What to store"

WHY_DROPPED = {
    "beaten": "the leader was better by three standard errors on the images so far",
    "interpolated": "never computed, but estimated from the logits at other values",
    "thinned out": "not among the best so far, so not worth more images",
}


def add_to(app: typer.Typer) -> None:
    add_command(app, sweep)


def sweep(
    model: options.Model,
    data: options.Data,
    alpha: Annotated[
        str | None,
        typer.Option(
            "--alpha",
            metavar="VALUES",
            help="Values of alpha: FROM:TO:COUNT, or a list with commas. Default: 0:0.2:21.",
            rich_help_panel=SWEPT,
        ),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(
            "--lambda",
            metavar="VALUES",
            help="Sweep the auxiliary branch's share of a split network.",
            rich_help_panel=SWEPT,
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="NAME.OPTION=VALUES",
            help="Sweep any option of a rewrite, alone or as a second axis: instance-aware.k=1,2,4. See surgeon ls "
            "norms.",
            rich_help_panel=SWEPT,
            autocompletion=completion.swept_options,
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            "--prior",
            metavar="VALUES",
            help="Sweep the prior of recalibrated statistics, alone or as a second axis; half of DATA is used to "
            "estimate "
            "them.",
            rich_help_panel=SWEPT,
        ),
    ] = None,
    mix_logits: options.MixLogits = False,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="M",
            help="Metric to choose by: {metrics}. See surgeon ls metrics. Default: accuracy; iou for segmentation.",
            rich_help_panel=CHOICE,
            autocompletion=completion.metrics,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="HOW",
            help="grid measures every value on all images; race drops beaten values early. Default: race if a grid "
            "would take "
            "over a minute.",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm", help="Choose on one half of the images, report on the other.", rich_help_panel=CHOICE
        ),
    ] = False,
    confirm_split: Annotated[
        str | None,
        typer.Option(
            "--confirm-split", metavar="S", help="Choose on --split, report on this split.", rich_help_panel=CHOICE
        ),
    ] = None,
    per_layer: Annotated[
        bool,
        typer.Option(
            "--per-layer",
            help="Also learn one alpha per layer by gradient descent; implies --confirm.",
            rich_help_panel=SWEPT,
        ),
    ] = False,
    per_channel: Annotated[
        bool,
        typer.Option(
            "--per-channel", help="Also learn one alpha per channel; implies --confirm.", rich_help_panel=SWEPT
        ),
    ] = False,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            metavar="SELECTOR",
            help="Only these layers, if the model is not converted yet.",
            rich_help_panel=SWEPT,
        ),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Write a checkpoint to DIR, with the best setting if its gain is significant.",
            rich_help_panel=KEPT,
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Store the best setting even if its gain is not significant; implies --apply.",
            rich_help_panel=KEPT,
        ),
    ] = False,
    temperature: Annotated[
        bool,
        typer.Option(
            "--temperature",
            help="Also store the fitted temperature in the checkpoint; implies --apply.",
            rich_help_panel=KEPT,
        ),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder for report, result, curves and journal. The same command resumes an interrupted sweep.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start again in a folder that holds a sweep.")] = False,
    under: options.Under = None,
    max_clean_loss: options.MaxCleanLoss = None,
    tta: options.Tta = None,
    merge: options.MergeHow = "logits",
    *,
    images: ChoosingImages,
    opening: Opening,
) -> Answer:
    """Find the best inference setting without retraining, alpha by default, and test whether its gain is real."""
    from surgeon.commands.sweep.settings import ALPHA_AXIS, LAMBDA_AXIS, PRIOR_AXIS, Swept, check_axes
    from surgeon.measuring.values import parse_priors, parse_values
    from surgeon.metrics import metrics
    from surgeon.models.names import check_model_name

    axes = [Swept.parse(text) for text in setting or ()]
    if alpha is not None:
        axes.insert(0, Swept(ALPHA_AXIS, parse_values(alpha, "--alpha")))
    if prior is not None:
        axes.append(Swept(PRIOR_AXIS, parse_priors(prior, "--prior")))
    if share is not None:
        if axes:
            texts = {"--alpha": alpha, "--prior": prior, "--sweep": setting}
            given = listing([*(name for name, text in texts.items() if text), "--lambda"])
            raise SurgeonError(f"{given} cannot be swept together.", "Sweep one after the other.")
        axes = [Swept(LAMBDA_AXIS, parse_values(share, "--lambda"))]
    first, *more = axes or [Swept(ALPHA_AXIS, parse_values("0:0.2:21", "--alpha"))]
    check_axes([first, *more])
    if (first.axis != ALPHA_AXIS or more) and (per_layer or per_channel):
        others = {"--lambda": share, "--prior": prior, "--sweep": setting}
        swept = next(name for name, text in others.items() if text)
        raise SurgeonError(f"--per-layer and --per-channel go with --alpha, not with {swept}.")
    if share is not None and layers is not None:
        raise SurgeonError("--layers goes with --alpha, --sweep and --prior, not with --lambda.")
    if share is None and mix_logits:
        raise SurgeonError("--mix-logits says how to mix both branches: it goes with --lambda.")
    if metric is not None:
        metrics[metric]
    options.check_under(under, max_clean_loss)
    if under and (per_layer or per_channel):
        raise SurgeonError("--per-layer and --per-channel learn from images as they are, not with --under.")
    apply = apply or temperature or force
    if apply and folder is None:
        raise SurgeonError("--apply writes a checkpoint, but there is no folder for it.", "Pass one with -o DIR.")
    check_model_name(model)
    with loading():
        from surgeon.commands.sweep.operation import SweepRequest, check_output, run_sweep
        from surgeon.results import Learning, Method
    kinds = {Learning.PER_LAYER: per_layer, Learning.PER_CHANNEL: per_channel}
    request = SweepRequest(
        inference=images.request(data, tta, merge),
        values=first.values,
        axis=first.axis,
        second=next(iter(more), None),
        mix_logits=mix_logits,
        metric=metric,
        method=None if method is None else output.one_of(Method, method, "--method"),
        confirm=confirm,
        confirm_split=confirm_split,
        learn=tuple(kind for kind, wanted in kinds.items() if wanted),
        layers=layers,
        apply=apply,
        temperature=temperature,
        force=force,
        under=tuple(under or ()),
        max_clean_loss=None if max_clean_loss is None else max_clean_loss / 100,
        output=folder,
        overwrite=overwrite,
    )
    if folder is not None:
        check_output(folder, overwrite)
    loaded = opening.open(model)
    with output.progress_bar("batches/s") as bar:
        result = run_sweep(loaded, request, bar)
    return Answer(result, partial(describe, result, folder))


def describe(result: Sweep, folder: Path | None) -> None:
    """Tell people what a sweep has found, and where it is kept."""
    tell(result)
    if result.checkpoint is not None and result.kept != result.best:
        output.say("Pass --force to store it anyway.")
    if folder is not None:
        tell_report(folder, "curves.png")
    else:
        output.say("Pass -o DIR to keep a report, and to be able to resume.")


def tell(result: Sweep) -> None:
    """What a sweep has found."""
    from surgeon.report import wording
    from surgeon.report.curves import sweep_in_terminal

    views = f"{result.views} per image ({result.tta})" if result.tta else ""
    preprocessing = [] if result.preprocessing is None else [result.preprocessing]
    shown_under = ", ".join(result.under)
    tell_measured(
        result,
        result.model,
        preprocessing,
        ("views", views),
        ("chosen under", shown_under),
        ("confirmed", (result.confirmed_under and f"under {', '.join(result.confirmed_under)}") or ""),
    )
    every = columns.every(point.metrics for point in result.points)
    few, fewest = (columns.shown(result.metric, narrow) for narrow in (False, True))
    output.show(
        table_of_points(result, every, narrow=False),
        table_of_points(result, few, narrow=False),
        table_of_points(result, fewest, narrow=True),
    )
    if reasons := dict.fromkeys(point.dropped for point in result.points if point.dropped):
        output.say(f"[dim]{'; '.join(f'{reason}: {WHY_DROPPED[reason]}' for reason in reasons)}[/]")
    if result.second_axis is None:
        output.say(escape(sweep_in_terminal(result)))
    else:
        output.show(table_of_pairs(result))
    output.show(table_of_settings(result, narrow=False), table_of_settings(result, narrow=True))
    for sentence in result.summary:
        output.say(f"• {escape(sentence)}")
    seen = result.choosing_images + result.confirming_images
    if result.estimating_images:
        other = count(result.estimating_images, "other image")
        output.say(f"• Statistics are of {other}, without their labels.")
    work = (
        f"{result.image_forwards:,} predictions of {count(seen, 'image')} in {result.seconds:.1f} s on {result.device}"
        f"{wording.time_text(result.spent)}"
    )
    output.say(f"[dim]{work} ({result.method.value})[/]")
    if (known := result.interpolation) is not None:
        output.say(f"[dim]{wording.interpolation_text(known, result.axis)}[/]")
    if result.checkpoint is not None:
        output.say(f"• {escape(result.decision)}")
        output.say(f"Checkpoint ({result.kept}): {escape(result.checkpoint)}")
