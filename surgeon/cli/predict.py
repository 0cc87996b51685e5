"""`surgeon predict`: which classes images show, or clips are of."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import options, output
from surgeon.cli.frame import Answer, add_command, loading
from surgeon.cli.groups import GivenImages, Opening
from surgeon.core.atomic import check_destination, check_new_files
from surgeon.core.errors import SurgeonError, count, printable
from surgeon.report.wording import preprocessing_text

if TYPE_CHECKING:
    from surgeon.results import Prediction

STDIN = "-"
LARGEST_SHOWN = 4
"""Classes of a mask."""
LEAST_SHOWN = 0.0005
"""Below it a probability is 0.0% in the table."""


def add_to(app: typer.Typer) -> None:
    add_command(app, predict)


def predict(
    model: options.Model,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE…",
            help="Images or audio clips: files, folders, or - for a list of paths on stdin.",
        ),
    ],
    top: Annotated[int, typer.Option("--top", metavar="K", min=1, help="Classes to show per image.")] = 5,
    tta: options.Tta = None,
    merge: options.MergeHow = "logits",
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a CSV file, one row per image and class.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Segmentation: folder for the masks. Default: masks."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE or the masks in DIR.")] = False,
    *,
    images: GivenImages,
    opening: Opening,
) -> Answer:
    """Predict classes or masks of images or audio clips, with the inference settings that the checkpoint stores."""
    from surgeon.models.names import check_model_name

    check_model_name(model)
    given = _listed(paths)
    if csv_file is not None:
        check_new_files(csv_file.parent, [csv_file.name], overwrite)
    if folder is not None:
        check_destination(folder, overwrite)
    with loading():
        from surgeon.commands.predict.files import found_files
        from surgeon.commands.predict.operation import run_prediction
    request = images.request("predict", tta, merge)
    loaded = opening.open(model)
    files = found_files(given, skip_missing=images.skip_bad, medium=loaded.medium)
    with output.progress_bar(f"{loaded.medium.noun}s/s") as bar:
        result = run_prediction(loaded, files, request, bar, top=top, csv_file=csv_file, folder=folder)
    return Answer(result, partial(tell, result))


def _listed(paths: list[str]) -> list[str]:
    """The paths, with those that are read from stdin in the place of `-`."""
    if paths.count(STDIN) > 1:
        raise SurgeonError("Standard input can be read only once.", "Give - once.")
    found: list[str] = []
    for path in paths:
        # Names of files are bytes, in whatever encoding.
        lines = (os.fsdecode(line).rstrip("\r\n") for line in sys.stdin.buffer) if path == STDIN else [path]
        found += [line for line in lines if line]
    if not found:
        raise SurgeonError("Standard input lists no images.", "Give one path a line, e.g. find . -name '*.jpg'.")
    return found


def tell(result: Prediction) -> None:
    """What people are told."""
    views = f"{result.views} per image ({result.tta})" if result.tta else ""
    temperature = "" if result.temperature is None else f"{result.temperature:.4g}, as stored"
    names = {"checkpoint": "named by the checkpoint", "numbers": "not named: numbers of outputs"}
    facts = (
        ("preprocessing", preprocessing_text(result.preprocessing)),
        ("rewrites", result.rewrites),
        ("predicts by", result.prediction_by),
        ("temperature", temperature),
        ("views", views),
        (
            "classes",
            f"{result.outputs:,}, {names.get(result.class_names_from, f'named as in {result.class_names_from}')}",
        ),
    )
    noun = result.preprocessing.medium.noun
    output.say(f"[bold]{escape(result.model)}[/]")
    for name, value in facts:
        if value:
            output.say(f"  {name:<13}  {escape(value)}")
    for sentence in (*result.remarks, *result.bad_images):
        output.note(sentence)
    if result.nan_images:
        output.warn([f"The logits of {count(result.nan_images, noun)} are NaN."])
    output.show(_table_of_masks(result) if result.masks else _table(result))
    number = len(result.images) or len(result.masks)
    rate = number / result.seconds
    output.say(f"[dim]{count(number, noun)} in {result.seconds:.1f} s ({rate:.0f}/s) on {result.device}[/]")
    if result.csv_file is not None:
        output.say(f"Table: {escape(result.csv_file)}")


def _table_of_masks(result: Prediction) -> Table:
    """The largest classes of an image and their shares of it."""
    table = Table()
    table.add_column("image", overflow="fold")
    table.add_column("largest classes, by their share of the pixels")
    table.add_column("mean confidence", justify="right")
    table.add_column("mask", overflow="fold")
    for one in result.masks:
        shares = ", ".join(f"{printable(each.name)} {each.share:.0%}" for each in one.classes[:LARGEST_SHOWN]) or "NaN"
        table.add_row(escape(printable(one.image)), escape(shares), f"{one.confidence:.1%}", escape(one.file))
    return table


def _table(result: Prediction) -> Table:
    """The classes of an image side by side with it; those whose probability would be 0.0% are left out."""
    table = Table()
    table.add_column(result.preprocessing.medium.noun, overflow="fold")
    table.add_column("class")
    table.add_column("probability", justify="right")
    for image in result.images:
        shown = [one for rank, one in enumerate(image.classes) if rank == 0 or one.probability >= LEAST_SHOWN]
        table.add_row(
            escape(printable(image.image)),
            "\n".join(escape(printable(one.name)) for one in shown) or "–",
            "\n".join(f"{one.probability:.1%}" for one in shown) or "NaN",
        )
    return table
