"""`surgeon ensemble`: several networks that predict as one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import columns, completion, options, output
from surgeon.cli.frame import Answer, add_command, loading, tell_measured, tell_report
from surgeon.cli.groups import InferenceImages
from surgeon.core.atomic import check_destination
from surgeon.core.errors import SurgeonError, count
from surgeon.report.wording import figure, gain_text, short_gain_text, short_names
from surgeon.report.wording import shown as presentation

if TYPE_CHECKING:
    from surgeon.results import Ensemble

OTHERS_AT_ONCE, OTHERS_IF_NARROW = 9, 4
"""Metrics beside each other in the tables that follow the first one."""


def add_to(app: typer.Typer) -> None:
    add_command(app, ensemble)


def ensemble(
    members: Annotated[
        list[str],
        typer.Argument(
            metavar="CKPT…",
            help="Two or more checkpoint folders, or any other MODEL.",
            autocompletion=completion.models,
        ),
    ],
    data: options.Data,
    merge: Annotated[
        str,
        typer.Option(
            "--merge",
            metavar="HOW",
            help="How members and views are averaged: logits, probabilities or geometric.",
        ),
    ] = "logits",
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="M",
            help="Metric to choose and rank by: {metrics}. See surgeon ls metrics. Default: accuracy; iou for "
            "segmentation.",
            autocompletion=completion.metrics,
        ),
    ] = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Also average only the members that help, chosen on separate images.")
    ] = False,
    choose_split: Annotated[
        str | None,
        typer.Option(
            "--choose-split",
            metavar="S",
            help="The split --greedy chooses on. Default: validation, else half of --split.",
        ),
    ] = None,
    soup: Annotated[bool, typer.Option("--soup", help="Also average the members' weights into one network.")] = False,
    statistics_split: Annotated[
        str, typer.Option("--statistics-split", metavar="S", help="The split for the soup's BatchNorm statistics.")
    ] = "train",
    statistics_images: Annotated[
        int, typer.Option("--statistics-images", metavar="N", min=1, help="At most this many images for them.")
    ] = 2048,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Folder for report, result and picture; with --soup a checkpoint."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what DIR holds.")] = False,
    tta: options.Tta = None,
    *,
    images: InferenceImages,
) -> Answer:
    """Average the predictions or the weights of several networks, and compare with the best of them."""
    from surgeon.commands.ensemble.names import check_member_names

    check_member_names(members)
    from surgeon.metrics import metrics  # which loads numpy

    if metric is not None:
        metrics[metric]
    if choose_split is not None and not greedy:
        raise SurgeonError("--choose-split says what --greedy chooses on: pass both.")
    with loading():
        from surgeon.commands.ensemble.members import open_members
        from surgeon.commands.ensemble.operation import EnsembleRequest, run_ensemble
    request = EnsembleRequest(
        inference=images.request(data, tta, merge),
        metric=metric,
        greedy=greedy,
        choose_split=choose_split,
        soup=soup,
        statistics_split=statistics_split,
        statistics_images=statistics_images,
        output=folder,
    )
    if folder is not None:
        check_destination(folder, overwrite)
    with output.working(f"Opening {len(members)} networks…"):
        opened = open_members(members)
    with output.progress_bar("images/s") as bar:
        result = run_ensemble(opened, request, bar)
    return Answer(result, partial(_describe, result, folder))


def _describe(result: Ensemble, folder: Path | None) -> None:
    tell(result)
    if folder is not None:
        tell_report(folder, "ensemble.png")


def tell(result: Ensemble) -> None:
    """What averaging brought."""
    views = f"{result.views} per image ({result.tta})" if result.tta else ""
    preprocessing = [member.preprocessing for member in result.members]
    tell_measured(result, f"{len(result.members)} members", preprocessing, ("views", views))
    records = [*(member.metrics for member in result.members), *(one.metrics for one in result.combinations)]
    few, fewest = (columns.shown(result.metric, is_narrow) for is_narrow in (False, True))
    wide, narrow = _table_of_rows(result, few, narrow=False), _table_of_rows(result, fewest, narrow=True)
    has_room = output.show(wide, narrow) is wide
    others = [name for name in columns.every(records) if name not in (few if has_room else fewest)]
    at_once = OTHERS_AT_ONCE if has_room else OTHERS_IF_NARROW
    for first in range(0, len(others), at_once):
        output.show(_table_of_others(result, others[first : first + at_once]))
    output.show(_table_of_disagreement(result))
    for sentence in result.summary:
        output.say(f"• {escape(sentence)}")
    images = result.members[0].metrics.images
    output.say(
        f"[dim]{count(images, 'image')}, {result.merge.value} averaged, {result.seconds:.1f} s on {result.device}[/]"
    )
    if result.checkpoint is not None:
        output.say(f"Checkpoint of the soup: {escape(result.checkpoint)}")


def _table_of_rows(result: Ensemble, shown: list[str], narrow: bool) -> Table:
    names = short_names([member.name for member in result.members])
    table = Table()
    table.add_column("network", overflow="fold")
    table.add_column("passes", justify="right")
    columns.add_figures(table, shown, result.metric, narrow)
    words = f"gain in {presentation(result.metric).heading}"
    over_best = f"{words}\nover the\nbest member" if narrow else f"{words} over the best member"
    table.add_column(over_best)
    for member in result.members:
        figures = (figure(name, member.metrics.value(name)) for name in shown)
        is_best = "best member" if member.name == result.best else ""
        table.add_row(escape(names[member.name]), str(result.views), *figures, is_best)
    table.add_section()
    for one in result.combinations:
        figures = (figure(name, one.metrics.value(name)) for name in shown)
        gain = one.gain(result.metric)
        gain_shown = short_gain_text(gain) if narrow else gain_text(gain)
        table.add_row(f"[bold]{one.name}[/]", str(one.passes * result.views), *figures, gain_shown)
    return table


def _table_of_others(result: Ensemble, names: list[str]) -> Table:
    """The metrics that the first table had no room for."""
    short = short_names([member.name for member in result.members])
    table = Table(title="Other metrics", title_justify="left")
    table.add_column("network", overflow="fold")
    columns.add_figures(table, names, result.metric, narrow=True)
    members = {escape(short[member.name]): member.metrics for member in result.members}
    for name, record in (members | {one.name: one.metrics for one in result.combinations}).items():
        table.add_row(name, *(figure(metric, record.value(metric)) for metric in names))
    return table


def _table_of_disagreement(result: Ensemble) -> Table:
    """Members by number, because their names would not fit above the columns."""
    names = short_names([member.name for member in result.members])
    title = f"Disagreement, % of images (mean {100 * result.mean_disagreement:.2f})"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("member", overflow="fold")
    for number in range(1, len(result.members) + 1):
        table.add_column(str(number), justify="right")
    for number, (member, line) in enumerate(zip(result.members, result.disagreement, strict=True)):
        cells = ("–" if other == number else f"{100 * value:.2f}" for other, value in enumerate(line))
        table.add_row(str(number + 1), escape(names[member.name]), *cells)
    return table
