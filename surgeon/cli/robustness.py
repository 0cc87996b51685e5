"""`surgeon robustness`: how networks do on images unlike those that they were trained on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import completion, options, output
from surgeon.cli.frame import Answer, add_command, loading, tell_measured, tell_report
from surgeon.cli.groups import InferenceImages, Opening
from surgeon.report.wording import figure
from surgeon.report.wording import label as wording_label

if TYPE_CHECKING:
    from surgeon.results import Robustness

MOST_CONDITIONS = 30
"""More of them are shown by corruption only."""


def add_to(app: typer.Typer) -> None:
    add_command(app, robustness)


def robustness(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="Networks; the first is the baseline.", autocompletion=completion.models
        ),
    ],
    data: options.Data,
    under: options.Under = None,
    seed: options.Seed = 0,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder for report, result, picture and journal. The same command resumes an interrupted run.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start again in DIR.")] = False,
    tta: options.Tta = None,
    merge: options.MergeHow = "logits",
    *,
    images: InferenceImages,
    opening: Opening,
) -> Answer:
    """Compare networks on the same images, clean, corrupted or attacked.

    Without --under: clean images and fifteen corruptions at five severities. DATA may also be a published set of
    corrupted images (imagenet-c:PATH, a folder of CIFAR-10-C's .npy files, a table with the columns corruption and
    severity) or of hard ones (imagenet-a:PATH, measured as they are).
    """
    from surgeon.conditions.base import check_conditions
    from surgeon.models.names import check_model_name

    check_conditions(under or ())
    for model in models:
        check_model_name(model)
    with loading():
        from surgeon.commands.robustness.operation import RobustnessRequest, check_output, run_robustness
    request = RobustnessRequest(images.request(data, tta, merge), tuple(under or ()), seed, folder, overwrite)
    if folder is not None:
        check_output(folder, overwrite)
    loaded = [opening.open(model) for model in models]
    with output.progress_bar("batches/s") as bar:
        result = run_robustness(loaded, request, bar)
    return Answer(result, partial(describe, result, folder))


def describe(result: Robustness, folder: Path | None) -> None:
    tell(result)
    if folder is not None:
        tell_report(folder, "robustness.png")
    else:
        output.say("Pass -o DIR to keep a report, and to be able to resume.")


def tell(result: Robustness) -> None:
    """Tell people what was found."""
    from surgeon.report.robustness_text import in_sentences, names_of

    names = names_of(result)
    tell_measured(result, ", ".join(names), [network.preprocessing for network in result.networks])
    if result.networks[0].corruptions:
        output.show(_corruptions(result, names))
    others = [one for one in result.networks[0].conditions if one.severity is None]
    if any(one.name != "clean" for one in others):
        output.show(_conditions(result, names))
    if result.networks[0].figures:
        output.show(_figures(result, names))
    for sentence in in_sentences(result):
        output.say(f"• {escape(sentence)}")
    output.say(f"[dim]{result.images:,} images in {result.seconds:.1f} s on {result.device}[/]")


def _corruptions(result: Robustness, names: list[str]) -> Table:
    """One row per corruption: of one network its severities, of several their means."""
    table = Table(title="Error by corruption", title_justify="left")
    table.add_column("corruption")
    first, several = result.networks[0], len(names) > 1
    severities = sorted({one.severity for one in first.conditions if one.severity is not None})
    for heading in names if several else [*map(str, severities), "mean"]:
        table.add_column(heading, justify="right")
    for place, row in enumerate(first.corruptions):
        if several:
            shown = [figure("accuracy", network.corruptions[place].error.value) for network in result.networks]
        else:
            errors = {one.severity: one.error for one in first.conditions if one.name == row.corruption}
            shown = [figure("accuracy", errors.get(severity)) for severity in severities]
            shown.append(figure("accuracy", row.error.value))
        table.add_row(row.corruption, *shown)
    return table


def _conditions(result: Robustness, names: list[str]) -> Table:
    primary = result.networks[0].conditions[0].metrics.primary
    title = wording_label(primary)
    table = Table(title=f"{title[0].upper()}{title[1:]} by condition", title_justify="left")
    table.add_column("condition")
    for name in names:
        table.add_column(name, justify="right")
    shown = [place for place, one in enumerate(result.networks[0].conditions) if one.severity is None]
    for place in shown[:MOST_CONDITIONS]:
        measured = (network.conditions[place].metrics for network in result.networks)
        figures = (figure(primary, one.value(primary)) for one in measured)
        table.add_row(escape(result.networks[0].conditions[place].condition), *figures)
    if len(shown) > MOST_CONDITIONS:
        table.add_row(f"… {len(shown) - MOST_CONDITIONS} more", *("" for _ in names))
    return table


def _figures(result: Robustness, names: list[str]) -> Table:
    from surgeon.report.robustness_text import against_text, headed, value_text

    table = Table(title="Figures, with 95% intervals over images", title_justify="left")
    several = len(names) > 1
    for heading in ("figure", "network") if several else ("figure",):
        table.add_column(heading)
    table.add_column("value", justify="right")
    table.add_column("95% interval", justify="right", no_wrap=True)
    if several:
        table.add_column(f"gain over {names[0]}")
    for place, row in enumerate(result.networks[0].figures):
        for name, network in zip(names, result.networks, strict=True):
            one = network.figures[place]
            cells = [
                value_text(one.key, one.value),
                f"{value_text(one.key, one.low)} to {value_text(one.key, one.high)}",
            ]
            if several:
                table.add_row(headed(row.key), name, *cells, against_text(one))
            else:
                table.add_row(headed(row.key), *cells)
    return table
