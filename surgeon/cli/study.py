"""`surgeon study`: many runs as one resumable job, and the table that comes of them."""

from __future__ import annotations

from collections.abc import Callable
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
from surgeon.report.wording import figure, gained, label, unit

if TYPE_CHECKING:
    from surgeon.metrics.variability import Measure
    from surgeon.results import Study, StudyDifference, StudyPlan, StudyVariability
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
    help="Run many fine-tunings as one resumable job, and compare them.\n\nsurgeon study FILE -o DIR runs a study.",
)
File = Annotated[Path, typer.Argument(metavar="FILE", help="The study, a YAML file.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a study.")]
Data = Annotated[str | None, typer.Option("--data", metavar="DATA", help="Images, instead of those named in the file.")]
Weights = Annotated[
    Path | None, typer.Option("--weights", metavar="FILE", help="Weights, instead of those named in the file.")
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", min=1, help="Runs in parallel. Default: what cores and memory allow."),
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
        typer.Option(
            "--output", "-o", metavar="DIR", help="Folder for runs, tables and report. The same command resumes there."
        ),
    ],
    jobs: Jobs = None,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="ADDRESS", help="Run on a Ray cluster that shares DIR: its address, auto, or local."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Retrain runs that were started with other settings.")
    ] = False,
    data: Data = None,
    weights: Weights = None,
) -> Answer:
    """Train the missing runs of a study, and compare its variants."""
    study = _load(file, data, weights)
    with loading():
        from surgeon.commands.study.operation import StudyRequest, failed_runs, run_study
    total = len(study.variants) * len(study.seeds)
    size = f"{count(len(study.variants), 'variant')} x {count(len(study.seeds), 'seed')}"
    headline = f"[bold]{escape(study.name)}[/]: {size}"
    with output.progress_bar() as bar:
        result = run_study(study, StudyRequest(folder, jobs, ray, overwrite), _Terminal(bar, total, headline))
    failure = None
    if failed := failed_runs(result):
        failure = SurgeonError(
            f"{count(len(failed), 'run')} of {total} failed: {listing(failed)}.",
            "The same command tries again.",
            ExitCode.FAILED,
        )
    return Answer(result, partial(_describe, result, folder), failure)


def show(folder: Folder) -> Answer:
    """Show the results so far, also while the study runs."""
    with loading():
        from surgeon.commands.study.operation import show_study
    result = show_study(folder)
    return Answer(result, partial(_describe, result, None))


def plan(
    file: File,
    folder: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="The study's folder, if it has been started.")
    ] = None,
    jobs: Jobs = None,
    data: Data = None,
    weights: Weights = None,
) -> Answer:
    """Show which runs are missing, and how much time and disk they need."""
    study = _load(file, data, weights)
    with loading():
        from surgeon.commands.study.planning import plan_study
    result = plan_study(study, folder, jobs, lambda sentence: output.say(f"[dim]{escape(sentence)}[/]"))
    return Answer(result, partial(tell_plan, result))


class _Terminal:
    """Shows how many runs are done as a bar, and each that ends as a line."""

    def __init__(self, bar: output.ProgressBar, total: int, headline: str) -> None:
        self._bar, self._total, self._done, self._headline = bar, total, 0, headline

    def began(self, task: Task) -> None:
        self._begin()
        self._bar("runs", self._done, self._total, f"{task.name} begun")

    def ended(self, task: Task, error: str) -> None:
        self._done += 1
        self._bar("runs", self._done, self._total)
        output.say(f"{escape(task.name)}  " + (f"[red]failed[/]: {escape(error)}" if error else "finished"))

    def says(self, sentence: str) -> None:
        self._begin()
        output.say(f"[dim]{escape(sentence)}[/]")

    def _begin(self) -> None:
        """Nothing is said before it is clear that the study can begin."""
        if self._headline:
            output.say(self._headline)
            self._headline = ""


def _describe(result: Study, folder: Path | None) -> None:
    tell(result)
    if folder is not None:
        tell_report(folder, "table.csv", "seeds.csv", *(["variability.csv"] if result.variability else []))


def tell(result: Study) -> None:
    """The figures so far, and what is missing."""
    for metric in dict.fromkeys(row.metric for row in result.rows):
        output.show(*(_figures(result, metric, with_seeds=with_seeds) for with_seeds in (True, False)))
        if any(one.metric == metric for one in result.differences):
            output.show(*(_differences(result, metric, every=every) for every in (True, False)))
    if result.variability:
        output.show(*(_variability(result, upright=upright) for upright in (False, True)))
        kinds = ((True, False), (False, False), (False, True))
        output.show(*(_ratios(result, intervals=intervals, upright=upright) for intervals, upright in kinds))
    for run in result.runs:
        if run.state.value != "finished":
            output.say(f"{escape(run.name)}  {run.state.value}{f': {escape(run.remark)}' if run.remark else ''}")
    for sentence in result.notes:
        output.say(f"• {escape(sentence)}")


def _figures(result: Study, metric: str, *, with_seeds: bool) -> Table:
    from surgeon.report.study import bounds_text, deviation_text, row_name

    table = Table(title=f"{label(metric)}, with 95% intervals", title_justify="left")
    table.add_column("variant", overflow="fold")
    for heading in (*(["seeds"] if with_seeds else []), "mean", "SD", "over seeds", "over images"):
        table.add_column(heading, justify="right")
    for row in (one for one in result.rows if one.metric == metric):
        seeds = ["all" if row.values[0].seed is None else str(len(row.values))] if with_seeds else []
        figures = (figure(metric, row.mean), deviation_text(metric, row.deviation))
        intervals = (bounds_text(metric, bounds) for bounds in (row.over_seeds, row.over_images))
        table.add_row(escape(row_name(row, result)), *seeds, *figures, *intervals)
    return table


def _differences(result: Study, metric: str, *, every: bool) -> Table:
    """Gains over the baselines; without `every`, only the intervals that verdicts rest on."""
    from surgeon.report.study import change_text, row_name

    shown = [one for one in result.differences if one.metric == metric]
    baselines = dict.fromkeys(_baseline(one) for one in shown)
    over = f" over {next(iter(baselines))}" if len(baselines) == 1 else ""
    gains = f"{label(metric)}: gains{over}{unit(metric) and f' in{unit(metric)}'}"
    table = Table(title=escape(f"{gains}, corrected for {result.comparisons} comparisons"), title_justify="left")
    table.add_column("variant", overflow="fold")
    if len(baselines) > 1:
        table.add_column("against", overflow="fold")
    intervals = ("over seeds", "corrected", "over images", "corrected") if every else ("over seeds", "over images")
    for heading in ("gain", *intervals):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for one in shown:
        plain, corrected = (one.over_seeds, one.over_images), (one.family_over_seeds, one.family_over_images)
        bounds = [each for pair in zip(plain, corrected, strict=True) for each in pair] if every else corrected
        names = [row_name(one, result), *([_baseline(one)] if len(baselines) > 1 else [])]
        told = (change_text(metric, each) for each in bounds)
        table.add_row(*map(escape, names), gained(metric, one.difference), *told, one.verdict)
    return table


def _baseline(one: StudyDifference) -> str:
    """What a row is compared with."""
    other = f", {one.baseline_evaluation}" if one.baseline_evaluation != one.evaluation else ""
    return f"{one.baseline}{other}"


def _variability(result: Study, *, upright: bool) -> Table:
    from surgeon.report.variability import column_name, value_text

    return _by_measure(result, "Variability of runs, ± standard error", column_name, value_text, upright=upright)


def _ratios(result: Study, *, intervals: bool, upright: bool) -> Table:
    from surgeon.report.variability import BEYOND_CHANCE, amount_name, key, ratio_bounds_text, ratio_text

    def told(_: Measure, row: StudyVariability) -> str:
        if key(row) == result.variability_reference:
            return "reference"
        star = "*" if row.verdict in BEYOND_CHANCE else ""
        bounds = f" ({ratio_bounds_text(row.ratio_over_runs)})" if intervals and row.ratio_over_runs else ""
        return f"{ratio_text(row.ratio)}{star}{bounds}"

    title = (
        f"Times the variability of {result.variability_reference}, 95% intervals over runs"
        f"{'' if intervals else ' in variability.csv'}; * beyond chance, corrected for "
        f"{result.variability_comparisons} comparisons"
    )
    return _by_measure(result, title, amount_name, told, upright=upright)


def _by_measure(
    result: Study,
    title: str,
    heading: Callable[[Measure], str],
    text: Callable[[Measure, StudyVariability], str],
    *,
    upright: bool,
) -> Table:
    """A row for each variant and a column for each measure; upright, the other way round."""
    from surgeon.report.variability import cell_names, key, measures_of

    table = Table(title=escape(title), title_justify="left")
    measures = measures_of(result)
    rows = {(key(row), row.measure): row for row in result.variability}
    grid = [["measure" if upright else "variant", *map(heading, measures)]]
    for cell, name in cell_names(result).items():
        found = [(measure, rows.get((cell, measure.name))) for measure in measures]
        grid.append([escape(name), *("" if row is None else text(measure, row) for measure, row in found)])
    headings, *lines = zip(*grid, strict=True) if upright else grid
    for place, words in enumerate(headings):
        table.add_column(words, justify="right" if place else "left", overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def tell_plan(result: StudyPlan) -> None:
    """Which runs are missing, and what they need."""
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
