"""`surgeon eval`: how well a network classifies a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from surgeon.cli import output
from surgeon.cli.options import (
    BatchSize,
    Data,
    Device,
    ImageColumn,
    Json,
    LabelColumn,
    Limit,
    Model,
    NumClasses,
    Pretrained,
    SkipBad,
    Split,
    Weights,
    Workers,
)

if TYPE_CHECKING:
    from surgeon.evaluation import Evaluation


def add_to(app: typer.Typer) -> None:
    app.command("eval")(output.reporting_errors(evaluate))


def evaluate(
    model: Model,
    data: Data,
    split: Split = None,
    limit: Limit = None,
    tta: Annotated[
        str | None,
        typer.Option("--tta", metavar="VIEWS", help="Views of each image: flip, flip-crop, cifar-flip-crop, ten-crop…"),
    ] = None,
    merge: Annotated[
        str, typer.Option("--merge", metavar="HOW", help="Of the views: logits, probabilities or geometric.")
    ] = "logits",
    skip_bad: SkipBad = False,
    image_column: ImageColumn = None,
    label_column: LabelColumn = None,
    batch_size: BatchSize = None,
    workers: Workers = None,
    device: Device = None,
    precision: Annotated[
        str, typer.Option("--precision", metavar="P", help="float32, bfloat16 or float16; a CPU always takes float32.")
    ] = "float32",
    save_logits: Annotated[
        Path | None, typer.Option("--save-logits", metavar="FILE", help="Write logits and labels as .safetensors.")
    ] = None,
    weights: Weights = None,
    pretrained: Pretrained = True,
    num_classes: NumClasses = None,
    as_json: Json = False,
) -> None:
    """Accuracy, cross-entropy with and without temperature scaling, and calibration of a network."""
    from surgeon.models.names import check_model_name

    check_model_name(model)
    with output.working("Loading torch and timm…"):
        from surgeon import checkpoint
        from surgeon.compute import Precision
        from surgeon.evaluation import Request, run_evaluation
        from surgeon.tta import Merge
    request = Request(
        data=data,
        split=split,
        limit=limit,
        image_column=image_column,
        label_column=label_column,
        skip_bad=skip_bad,
        tta=tta,
        merge=output.one_of(Merge, merge, "--merge"),
        batch_size=batch_size,
        workers=workers,
        device=device,
        precision=output.one_of(Precision, precision, "--precision"),
        save_logits=save_logits,
    )
    with output.working(f"Opening {model}…"):
        loaded = checkpoint.open_model(model, weights=weights, pretrained=pretrained, num_classes=num_classes)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns,
        TextColumn("{task.fields[rate]}"),
        console=output.people,
        transient=True,
        disable=not output.people.is_terminal,
    ) as bar:
        task = bar.add_task("evaluating", total=None, rate="")

        def progress(done: int, total: int) -> None:
            speed = bar.tasks[task].speed
            bar.update(task, completed=done, total=total, rate=f"{speed:.0f} images/s" if speed else "")

        result = run_evaluation(loaded, request, progress)
    if as_json:
        output.emit_json(result.model_dump_json(indent=2))
        return
    _describe(result, request.precision != result.precision)


def _describe(result: Evaluation, other_precision: bool) -> None:
    images = result.preprocessing
    size = "x".join(map(str, images.input_size[1:]))
    output.say(f"[bold]{escape(result.model)}[/] on {escape(result.data)}, split {result.split}")
    if result.rewrites:
        output.say(f"  rewrites       {escape(result.rewrites)}")
    output.say(
        f"  preprocessing  {size} px, {images.interpolation}, crop {images.crop_pct:g}, "
        f"mean {_numbers(images.mean)}, std {_numbers(images.std)}"
    )
    if result.tta:
        output.say(f"  views          {result.views} per image ({result.tta})")
    if other_precision:
        output.say(f"  [yellow]note:[/] computed in {result.precision.value}: a CPU does not do better with less")
    if result.bad_images:
        output.say(f"  [yellow]note:[/] left out {len(result.bad_images)} unreadable: {escape(result.bad_images[0])}…")
    output.show(_table(result))
    speed = f"{result.images_per_second:.0f} images/s on {result.device}"
    output.say(f"{result.metrics.images:,} images in {result.seconds:.1f} s, {speed}")
    if result.logits_file:
        output.say(f"Logits: {result.logits_file}")


def _numbers(values: tuple[float, ...]) -> str:
    return "/".join(f"{value:.3g}" for value in values)


def _table(result: Evaluation) -> Table:
    figures = result.metrics
    table = Table()
    table.add_column("metric")
    table.add_column("value", justify="right")
    interval = f"{figures.accuracy:.2%}  (95%: {figures.accuracy_low:.2%} to {figures.accuracy_high:.2%})"
    table.add_row("top-1", interval)
    if figures.top5 is not None:
        table.add_row("top-5", f"{figures.top5:.2%}")
    table.add_row("cross-entropy", f"{figures.cross_entropy:.4f}")
    if figures.temperature is not None:
        label = f"cross-entropy at temperature {figures.temperature:.3f} (fitted here)"
        table.add_row(label, f"{figures.scaled_cross_entropy:.4f}")
    for name, value in (
        ("calibration error (ECE)", figures.ece),
        ("RMS calibration error", figures.rms),
        ("mean calibration error (MAD)", figures.mad),
        ("AURRA", figures.aurra),
        ("soft F1", figures.soft_f1),
    ):
        table.add_row(name, f"{value:.4f}")
    if figures.nan_images:
        table.add_row("images with NaN logits", str(figures.nan_images))
    return table
