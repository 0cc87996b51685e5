"""`surgeon sweep`: the best setting without retraining, and whether its gain is real."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import columns, completion, options, output
from surgeon.cli.frame import Answer, add_command, loading, tell_measured, tell_report
from surgeon.cli.groups import ChoosingImages, Opening
from surgeon.core.errors import SurgeonError, count, listing
from surgeon.report.wording import figure, gain_text, short_gain_text

if TYPE_CHECKING:
    from surgeon.results import Point, Sweep

WHY_DROPPED = {
    "beaten": "the leader was better beyond doubt on the images so far",
    "thinned out": "not among the best so far, so not worth more images",
}


def add_to(app: typer.Typer) -> None:
    add_command(app, sweep)


def sweep(
    model: options.Model,
    data: options.Data,
    alpha: Annotated[
        str | None,
        typer.Option("--alpha", metavar="VALUES", help="FROM:TO:COUNT, or single values; default: 0:0.2:21."),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option("--lambda", metavar="VALUES", help="Instead: the share of a split network's auxiliary branch."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="REWRITE.OPTION=VALUES",
            help="Instead, or as a second axis: any option that can be swept. See surgeon ls norms.",
            autocompletion=completion.swept_options,
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            "--prior",
            metavar="VALUES",
            help="Instead, or as a second axis: how many images old statistics count for; half of DATA give new ones.",
        ),
    ] = None,
    mix_logits: options.MixLogits = False,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="M",
            help="What to choose by: {metrics}. See surgeon ls metrics. Default: accuracy, of masks iou.",
            autocompletion=completion.metrics,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="HOW",
            help="grid measures all values, race drops the beaten ones; default: race if a grid takes over a minute.",
        ),
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Choose on one half of the images, report on the other.")
    ] = False,
    confirm_split: Annotated[
        str | None, typer.Option("--confirm-split", metavar="S", help="Choose on --split, report on this split.")
    ] = None,
    per_layer: Annotated[
        bool, typer.Option("--per-layer", help="Also fit one alpha per layer, by gradient; implies --confirm.")
    ] = False,
    per_channel: Annotated[
        bool, typer.Option("--per-channel", help="Also fit one alpha per channel; implies --confirm.")
    ] = False,
    layers: Annotated[
        str | None,
        typer.Option("--layers", metavar="SELECTOR", help="Only these layers, if the model is not converted yet."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write a checkpoint to DIR, with the best setting if its gain is real.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Store the best setting even if its gain may be noise; implies --apply.")
    ] = False,
    temperature: Annotated[
        bool, typer.Option("--temperature", help="Also store the fitted temperature there; implies --apply.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Result, curves, page, journal. The same command resumes there."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start afresh in a folder that holds a sweep.")
    ] = False,
    under: options.Under = None,
    max_clean_loss: options.MaxCleanLoss = None,
    tta: options.Tta = None,
    merge: options.MergeHow = "logits",
    *,
    images: ChoosingImages,
    opening: Opening,
) -> Answer:
    """Find the best alpha without retraining: every value on the same images, and whether the gain is real."""
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
            raise SurgeonError(f"{given} cannot be swept at once.", "Sweep one after the other.")
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
    """Tell people what a sweep has found."""
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
        _table_of_points(result, every, narrow=False),
        _table_of_points(result, few, narrow=False),
        _table_of_points(result, fewest, narrow=True),
    )
    if reasons := dict.fromkeys(point.dropped for point in result.points if point.dropped):
        output.say(f"[dim]{'; '.join(f'{reason}: {WHY_DROPPED[reason]}' for reason in reasons)}[/]")
    if result.second_axis is None:
        output.say(escape(sweep_in_terminal(result)))
    else:
        output.show(_table_of_pairs(result))
    output.show(_table_of_settings(result, narrow=False), _table_of_settings(result, narrow=True))
    for sentence in result.summary:
        output.say(f"• {escape(sentence)}")
    seen = result.choosing_images + result.confirming_images
    if result.estimating_images:
        other = count(result.estimating_images, "other image")
        output.say(f"• Statistics are of {other}, whose labels were not looked at.")
    work = (
        f"{result.image_forwards:,} predictions of {count(seen, 'image')} in {result.seconds:.1f} s on {result.device}"
    )
    output.say(f"[dim]{work} ({result.method.value})[/]")
    if folder is not None:
        tell_report(folder, "curves.png")
    else:
        output.say("Pass -o DIR to keep a report, and to go on after an interruption.")
    if result.checkpoint is not None:
        output.say(f"• {escape(result.decision)}")
        if result.kept != result.best:
            output.say("  Pass --force to store it anyway.")
        output.say(f"Checkpoint ({result.kept}): {escape(result.checkpoint)}")


def _table_of_points(result: Sweep, names: list[str], narrow: bool) -> Table:
    table = Table()
    for axis in filter(None, (result.axis, result.second_axis)):
        table.add_column(axis, justify="right")
    table.add_column("images", justify="right")
    columns.add_figures(table, names, result.metric, narrow)
    columns.add_gain(table, result.metric, narrow)
    if narrow:
        table.add_column("")
    for point in result.points:
        mark = " ←" if result.is_chosen(point) else ""
        figures = (figure(name, point.metrics.value(name)) for name in names)
        remarks = _remarks(point) if narrow else [_remark(point)]
        remarks[-1] = f"{remarks[-1]}{mark}".strip()
        values = (f"{value:g}" for value in (point.value, point.second) if value is not None)
        table.add_row(*values, f"{point.metrics.images:,}", *figures, *remarks)
    return table


def _table_of_pairs(result: Sweep) -> Table:
    """The metric that was swept by, as a heat map without colours."""
    from surgeon.report.heat import heat_map

    drawn = heat_map(result, result.metric)
    cells = {(cell.column, cell.row): f"{cell.written}{' ←' if cell.chosen else ''}" for cell in drawn.cells}
    table = Table(title=f"{drawn.title}: {result.axis} from left to right", title_justify="left")
    table.add_column(drawn.y_label, justify="right")
    for value in drawn.columns:
        table.add_column(value, justify="right")
    for row, value in enumerate(drawn.rows):
        table.add_row(value, *(cells.get((column, row), "–") for column in range(len(drawn.columns))))
    return table


def _remark(point: Point) -> str:
    if point.metrics.nan_images:
        return f"NaN logits for {count(point.metrics.nan_images, 'image')}"
    if point.gain is None:
        return "original network"
    return gain_text(point.gain) + (f"; {point.dropped}" if point.dropped else "")


def _remarks(point: Point) -> list[str]:
    """Gain and remark in columns of their own, in few words."""
    if point.metrics.nan_images:
        return ["", f"{point.metrics.nan_images:,} NaN"]
    if point.gain is None:
        return ["", "original"]
    return [short_gain_text(point.gain), point.dropped or ("not significant" if point.gain.within_noise else "")]


def _table_of_settings(result: Sweep, narrow: bool) -> Table:
    where = "on held-out images" if result.confirming_images else "on the same images"
    best = {result.best: f"{result.best} ←"}
    records = {best.get(setting.name, setting.name): setting.reported for setting in result.settings}
    table = columns.by_metric(records, f"Settings, {where}")
    gains = (setting.gain(result.metric) for setting in result.settings)
    told = ("" if gain is None else short_gain_text(gain) if narrow else gain_text(gain) for gain in gains)
    table.add_row(f"gain in {columns.heading(result.metric)}", *told)
    return table
