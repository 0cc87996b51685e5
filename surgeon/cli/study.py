"""`surgeon study`: many runs as one resumable job, and the table that comes of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from surgeon.cli import output
from surgeon.cli.frame import Answer, add_command, loading, tell_report
from surgeon.core.errors import ExitCode, SurgeonError, count, listing
from surgeon.report.wording import MISSING, difference, figure, label, unit

if TYPE_CHECKING:
    from surgeon.results import Study, StudyPlan
    from surgeon.studies.definition import Definition
    from surgeon.studies.tasks import Task

RUN = "run"


class RunByDefault(TyperGroup):
    """`study FILE …` is `study run FILE …`; a file that is called like a command is written ./show."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Run many fine-tunings as one resumable job, and compare them: `surgeon study FILE -o DIR`.",
)
File = Annotated[Path, typer.Argument(metavar="FILE", help="The study, a YAML file.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a study.")]
Data = Annotated[str | None, typer.Option("--data", metavar="DATA", help="Other images than the file names.")]
Weights = Annotated[Path | None, typer.Option("--weights", metavar="FILE", help="Other weights than the file names.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", min=1, help="Runs at a time. Default: as cores and memory allow."),
]


def add_to(parent: typer.Typer) -> None:
    for command, name in ((run, RUN), (show, "show"), (plan, "plan")):
        add_command(app, command, name)
    parent.add_typer(app, name="study")


def _load(file: Path, data: str | None, weights: Path | None) -> Definition:
    from surgeon.studies.file import load_study

    given = {"data": data, "weights": weights}
    return load_study(file, {key: str(value) for key, value in given.items() if value is not None})


def run(
    file: File,
    folder: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Runs, table, page. The same command goes on there."),
    ],
    jobs: Jobs = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="A Ray cluster that shares DIR: its address, auto, or local."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Train runs afresh that were begun with other settings.")
    ] = False,
    data: Data = None,
    weights: Weights = None,
) -> Answer:
    """Do what is missing of a study, and compare its variants."""
    study = _load(file, data, weights)
    with loading():
        from surgeon.commands.study.operation import StudyRequest, failed_runs, run_study
    total = len(study.variants) * len(study.seeds)
    output.say(
        f"[bold]{escape(study.name)}[/]: {count(len(study.variants), 'variant')} x {count(len(study.seeds), 'seed')}"
    )
    with output.progress_bar() as bar:
        result = run_study(study, StudyRequest(folder, jobs, ray, overwrite), _Terminal(bar, total))
    failure = None
    if failed := failed_runs(result):
        failure = SurgeonError(
            f"{count(len(failed), 'run')} of {total} failed: {listing(failed)}.",
            "The same command tries again.",
            ExitCode.FAILED,
        )
    return Answer(result, partial(_describe, result, folder), failure)


def show(folder: Folder) -> Answer:
    """Show the table so far, also while the study runs."""
    with loading():
        from surgeon.commands.study.operation import show_study
    result = show_study(folder)
    return Answer(result, partial(_describe, result, None))


def plan(
    file: File,
    folder: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where it has been begun, if it has.")
    ] = None,
    jobs: Jobs = None,
    data: Data = None,
    weights: Weights = None,
) -> Answer:
    """Say what would run, how long it would take, and how much disk."""
    study = _load(file, data, weights)
    with loading():
        from surgeon.commands.study.planning import plan_study
    result = plan_study(study, folder, jobs, lambda sentence: output.say(f"[dim]{escape(sentence)}[/]"))
    return Answer(result, partial(_describe_plan, result))


class _Terminal:
    """Shows how many runs are done as a bar, and each that ends as a line."""

    def __init__(self, bar: output.ProgressBar, total: int) -> None:
        self._bar, self._total, self._done = bar, total, 0

    def began(self, task: Task) -> None:
        self._bar("runs", self._done, self._total, f"{task.name} begun")

    def ended(self, task: Task, error: str) -> None:
        self._done += 1
        self._bar("runs", self._done, self._total)
        output.say(f"{escape(task.name)}  " + (f"[red]failed[/]: {escape(error)}" if error else "finished"))

    def says(self, sentence: str) -> None:
        output.say(f"[dim]{escape(sentence)}[/]")


def _describe(result: Study, folder: Path | None) -> None:
    for metric in dict.fromkeys(row.metric for row in result.rows):
        output.show(_table(result, metric, narrow=False), _table(result, metric, narrow=True))
    unfinished = [run for run in result.runs if run.state.value != "finished"]
    for run in unfinished:
        output.say(f"{escape(run.name)}  {run.state.value}{f': {escape(run.remark)}' if run.remark else ''}")
    for sentence in result.notes:
        output.say(f"• {escape(sentence)}")
    if folder is not None:
        tell_report(folder, "table.csv", "seeds.csv")


def _table(result: Study, metric: str, narrow: bool) -> Table:
    from surgeon.report.study import bounds_text, change_text, deviation_text, row_name

    table = Table(title=f"{label(metric)}, 95% intervals over seeds and over images", title_justify="left")
    table.add_column("variant", overflow="fold")
    wide = [] if narrow else ["over seeds", "over images"]
    changes = [] if narrow else ["over seeds", "over images", f"seeds, 1 of {result.comparisons}"]
    for heading in ("n", "mean", "SD", *wide, f"difference{unit(metric)}", *changes):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for row in (one for one in result.rows if one.metric == metric):
        own = [str(len(row.values)), figure(metric, row.mean), deviation_text(metric, row.deviation)]
        own += [] if narrow else [bounds_text(metric, row.over_seeds), bounds_text(metric, row.over_images)]
        key = (row.variant, row.evaluation, metric)
        compared = [one for one in result.differences if (one.variant, one.evaluation, one.metric) == key]
        for one in compared:
            intervals = (one.over_seeds, one.over_images, one.family_over_seeds)
            more = [] if narrow else [change_text(metric, bounds) for bounds in intervals]
            table.add_row(escape(row_name(row, result)), *own, difference(metric, one.difference), *more, one.verdict)
        if not compared:
            table.add_row(escape(row_name(row, result)), *own, MISSING, *("" for _ in changes), "")
    return table


def _describe_plan(result: StudyPlan) -> None:
    table = Table(title=f"{result.name}: {len(result.missing)} of {result.runs} runs are missing", title_justify="left")
    table.add_column("run")
    table.add_column("state")
    for heading in ("minutes", "MB"):
        table.add_column(heading, justify="right")
    for run in result.missing:
        table.add_row(escape(run.name), run.state.value, f"{run.seconds / 60:.1f}", f"{run.bytes / 1e6:.1f}")
    output.show(table)
    output.say(
        f"{count(len(result.missing), 'run')} and {count(result.evaluations, 'evaluation')}: about "
        f"{result.seconds / 60:.1f} minutes, {result.jobs} at a time (from {escape(result.measured)}); "
        f"{result.bytes / 1e6:,.0f} MB of disk, of {result.free_bytes / 1e9:,.0f} GB that are free."
    )
