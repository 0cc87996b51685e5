"""`surgeon eval`: how well a network classifies or segments a data set."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import columns, completion, options, output
from surgeon.cli.frame import Answer, add_command, loading, tell_measured, tell_report
from surgeon.cli.groups import InferenceImages, Opening
from surgeon.core.atomic import check_destination
from surgeon.core.errors import SurgeonError
from surgeon.report.wording import arrow, engine_text, figure, gain_text, headed, label, short_gain_text

KEPT = "What to store"

if TYPE_CHECKING:
    from surgeon.results import Evaluation, MaskBreakdown


def add_to(app: typer.Typer) -> None:
    add_command(app, evaluate, "eval")


def evaluate(
    model: options.Model,
    data: options.Data,
    tta: options.Tta = None,
    merge: options.MergeHow = "logits",
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch",
            metavar="B",
            help="Use one branch of a split network: main or aux.",
            rich_help_panel=options.BRANCHES,
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            "--lambda",
            metavar="X",
            help="Mix the branches of a split network: 0 is main, 1 is aux.",
            rich_help_panel=options.BRANCHES,
        ),
    ] = None,
    mix_logits: options.MixLogits = False,
    under: options.Under = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="E",
            help="torch or onnxruntime, which is faster for some networks on a CPU and is compared with torch.",
            rich_help_panel=options.COMPUTING,
            autocompletion=completion.engines,
        ),
    ] = "torch",
    save_logits: Annotated[
        Path | None,
        typer.Option(
            "--save-logits",
            metavar="FILE",
            help="Write logits and labels to a .safetensors file.",
            rich_help_panel=KEPT,
        ),
    ] = None,
    save_features: Annotated[
        bool,
        typer.Option(
            "--save-features",
            help="With --save-logits: also write the penultimate features, one row per image.",
            rich_help_panel=KEPT,
        ),
    ] = False,
    temperature: Annotated[
        bool,
        typer.Option(
            "--temperature",
            help="Fit a temperature on validation images and store it in a checkpoint if its gain is significant.",
            rich_help_panel=KEPT,
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="With --temperature: store it even if its gain is not significant.",
            rich_help_panel=KEPT,
        ),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder for report, result and picture; with --temperature a checkpoint.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what DIR holds.")] = False,
    *,
    images: InferenceImages,
    opening: Opening,
) -> Answer:
    """Measure accuracy, cross-entropy (also after temperature scaling) and calibration."""
    from surgeon.models.names import check_model_name

    check_model_name(model)
    options.check_under(under, None)
    if force and not temperature:
        raise SurgeonError("--force stores a temperature whose gain may be noise: pass --temperature too.")
    if save_features and save_logits is None:
        raise SurgeonError("--save-features adds to the file of the logits: pass --save-logits too.")
    if temperature and folder is None:
        raise SurgeonError("--temperature writes a checkpoint and needs a place for it.", "Pass one with -o DIR.")
    if temperature and branch == "aux":
        raise SurgeonError(
            "A checkpoint predicts by its main branch, so it cannot take a temperature that was fitted to the other.",
            "Mix them instead: --lambda 1 is the auxiliary branch.",
        )
    with loading():
        from surgeon.commands.evaluate import run_evaluation
        from surgeon.commands.export.in_onnxruntime import check_request
        from surgeon.core.devices import Engine
        from surgeon.surgery.branches import taking_branch
    computed_by = output.one_of(Engine, engine, "--engine")
    request = images.request(data, tta, merge)
    if computed_by is Engine.ONNXRUNTIME:
        check_request(request)
    if folder is not None:
        check_destination(folder, overwrite)
    loaded = opening.open(model)
    with taking_branch(loaded.model, branch, share, mix_logits), output.progress_bar("images/s") as bar:
        result = run_evaluation(
            loaded,
            request,
            bar,
            save_logits=save_logits,
            save_features=save_features,
            output=folder,
            with_temperature=temperature,
            force=force,
            under=under or (),
            engine=computed_by,
        )
    return Answer(result, partial(_describe, result, request.precision != result.precision, folder))


def _describe(result: Evaluation, other_precision: bool, folder: Path | None) -> None:
    tell(result)
    if other_precision:
        output.note(f"computed in {result.precision.value}: lower precision is not faster on a CPU")
    if folder is not None:
        tell_report(folder, "evaluation.png", *(["masks.png"] if result.masks is not None else []))


def tell(result: Evaluation) -> None:
    """What was measured."""
    views = f"{result.views} per image ({result.tta})" if result.tta else ""
    facts = [
        ("rewrites", result.rewrites),
        ("predicts by", result.prediction_by),
        ("views", views),
        ("engine", engine_text(result)),
    ]
    if result.masks is not None:
        from surgeon.report.masks import size_text, void_text

        facts += [("segmentation", size_text(result.masks)), ("void", void_text(result.masks))]
    tell_measured(result, result.model, [result.preprocessing], *facts)
    output.show(_table(result))
    samples = f"{result.preprocessing.medium.noun}s"
    speed = f"{result.images_per_second:.0f} {samples}/s on {result.device}"
    output.say(f"{result.metrics.images:,} {samples} in {result.seconds:.1f} s, {speed}")
    if result.masks is not None:
        _describe_masks(result.masks)
    if result.under:
        output.show(*(_table_of_conditions(result, short=short) for short in (False, True)))
    if (one := result.against_one_view) is not None:
        gains = {gain.metric: gain for gain in one.gains}
        first = figure(one.metrics.primary, one.metrics.value(one.metrics.primary))
        output.say(
            f"Gain over one view ({first}, {one.metrics.cross_entropy:.4f}): {label(one.metrics.primary)} "
            f"{gain_text(gains[one.metrics.primary])}; cross-entropy {gain_text(gains['cross-entropy'])}; "
            f"cost: {result.views} views, {one.times_the_time:.1f}x the time"
        )
    if result.logits_file:
        output.say(f"Logits: {result.logits_file}")
    if result.checkpoint:
        output.say(escape(result.decision))
        output.say(f"Checkpoint: {escape(result.checkpoint)}")


def _describe_masks(masks: MaskBreakdown) -> None:
    """Class by class, in the order of their numbers."""
    from surgeon.core.errors import listing

    table = Table(title="Classes", title_justify="left")
    table.add_column("class")
    for heading in ("IoU", "95% interval", "found", "pixels", "images"):
        table.add_column(heading, justify="right")
    for one in masks.classes:
        between = f"{figure('iou', one.iou_low)} to {figure('iou', one.iou_high)}"
        numbers = figure("iou", one.iou), between, f"{one.found:.1%}", f"{one.pixels:,}", f"{one.images:,}"
        table.add_row(escape(one.name), *numbers)
    output.show(table)
    if masks.absent:
        output.note(f"no image shows {listing(masks.absent, 'or')}, so that is left out of the mean IoU")


def _table_of_conditions(result: Evaluation, *, short: bool) -> Table:
    table = Table(title="Under conditions", title_justify="left")
    table.add_column("condition")
    primary = result.metrics.primary
    for name in (primary, "cross-entropy", "ece"):
        table.add_column(headed(name), justify="right")
    table.add_column(f"{label(primary)} against clean images{', points' if short else ''}")
    told = short_gain_text if short else gain_text
    for one in result.under:
        shown = (figure(name, one.metrics.value(name)) for name in (primary, "cross-entropy", "ece"))
        table.add_row(escape(one.condition), *shown, told(one.against_clean) if one.against_clean else "")
    return table


def _table(result: Evaluation) -> Table:
    figures = result.metrics
    table = Table()
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("95% interval", justify="right")
    of_pixels = "of pixels: " if result.masks is not None else ""
    for name in columns.every([figures]):
        value, interval = figures.value(name), result.intervals.get(name)
        between = " to ".join(figure(name, edge) for edge in interval) if interval else ""
        table.add_row(
            escape(f"{of_pixels if name != figures.primary else ''}{label(name)} {arrow(name)}"),
            figure(name, value),
            between,
        )
    table.add_row("temperature (fitted)", figure("temperature", figures.temperature), "")
    if figures.nan_images:
        table.add_row("images with NaN logits", str(figures.nan_images), "")
    return table
