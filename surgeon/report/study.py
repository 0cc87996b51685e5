"""A study as a picture, as a page and as tables for other programs: every seed a dot, means with their intervals."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgeon.metrics.variability import MEASURES
from surgeon.report import folder as report_folder
from surgeon.report import svg, variability, wording
from surgeon.report.chart import RowChart, RowMark
from surgeon.report.frame import render
from surgeon.report.png import save_picture

if TYPE_CHECKING:
    from surgeon.results import Bounds, Study, StudyDifference, StudyRow

PICTURE, TABLE, SEEDS = "study.png", "table.csv", "seeds.csv"
NO_FIGURES = "There are no figures yet."


def study_files(result: Study) -> dict[str, Callable[[Path], None]]:
    """Everything that is written of a study, each file by its name with what writes it."""
    files = report_folder.report_files(result, PICTURE, study_picture, study_page)
    if not result.rows:
        del files[PICTURE]
    tables = {
        TABLE: lambda path: _write_csv(path, table_lines(result)),
        SEEDS: lambda path: _write_csv(path, seed_lines(result)),
    }
    if result.variability:
        tables[variability.TABLE] = lambda path: _write_csv(path, variability.lines(result))
    if (chart := variability.heat_map(result)) is not None:
        files[variability.PICTURE] = lambda path: save_picture(f"{result.name}: variability of runs", [chart], path)
    return tables | files


def study_picture(result: Study, path: Path) -> None:
    """A chart for each metric, as a PNG."""
    save_picture(f"{result.name}: means over seeds", charts(result), path)


def charts(result: Study) -> list[RowChart]:
    """One for each metric that has figures."""
    names = dict.fromkeys(row.metric for row in result.rows)
    return [_chart(name, [row for row in result.rows if row.metric == name], result) for name in names]


def row_name(row: StudyRow | StudyDifference, result: Study) -> str:
    """The variant, and the evaluation where there are several."""
    several = len({one.evaluation for one in result.rows}) > 1
    return f"{row.variant}, {row.evaluation}" if several else row.variant


def _chart(metric: str, rows: Sequence[StudyRow], result: Study) -> RowChart:
    shown = wording.shown(metric)
    scale = shown.factor
    marks = []
    for row in rows:
        if not math.isfinite(row.mean):
            continue
        dots = [
            (scale * one.value, f"seed {one.seed}: {wording.figure(metric, one.value)}")
            for one in row.values
            if one.seed is not None and math.isfinite(one.value)
        ]
        bounds, name = row.over_seeds or row.over_images, row_name(row, result)
        marks.append(
            RowMark(
                name=name,
                value=scale * row.mean,
                exact=row.mean,
                text=f"{name}: {wording.figure(metric, row.mean)}",
                interval=(scale * bounds.low, scale * bounds.high) if bounds and _finite(bounds) else None,
                dots=dots,
            )
        )
    title = wording.label(metric)
    note = "Large dots: means, with 95% intervals over seeds (with one seed: over images). Small dots: seeds."
    return RowChart(metric, title[0].upper() + title[1:], marks, unit="%" if shown.is_share else "", note=note)


def study_page(result: Study) -> str:
    """The whole result as one HTML page."""
    drawn = [(svg.row_drawing(chart), chart) for chart in charts(result) if chart.rows]
    heat = variability.heat_map(result)
    facts = [
        ("runs", _states(result)),
        ("folder", result.output),
    ]
    return render(
        "study.html.j2", result, result=result, drawn=drawn, facts=facts, name=row_name, bounds=bounds_text,
        change=change_text, deviation=deviation_text, no_figures=NO_FIGURES, variability=variability, measures=MEASURES,
        maps=svg.heat_drawings([heat] if heat is not None else []),
    )  # fmt: skip


def _states(result: Study) -> str:
    """How many runs are finished, and the names of the others."""
    others = [f"{run.name} ({run.state.value})" for run in result.runs if run.state.value != "finished"]
    return ", ".join([f"{len(result.runs) - len(others)} of {len(result.runs)} finished", *others])


def _finite(bounds: Bounds) -> bool:
    return math.isfinite(bounds.low) and math.isfinite(bounds.high)


def bounds_text(metric: str, bounds: Bounds | None) -> str:
    """The interval of a figure: `95.10% to 96.30%`."""
    if bounds is None or not _finite(bounds):
        return wording.MISSING
    return f"{wording.figure(metric, bounds.low)} to {wording.figure(metric, bounds.high)}"


def change_text(metric: str, bounds: Bounds | None) -> str:
    """The interval of a gain: `-0.10 to +0.62`; positive is better."""
    if bounds is None or not _finite(bounds):
        return wording.MISSING
    ends = (bounds.high, bounds.low) if wording.arrow(metric) == "↓" else (bounds.low, bounds.high)
    return " to ".join(wording.gained(metric, end) for end in ends)


def deviation_text(metric: str, value: float | None) -> str:
    """A standard deviation, without its unit."""
    return wording.MISSING if value is None else wording.difference(metric, value).removeprefix("+")


def table_lines(result: Study) -> Iterator[list[Any]]:
    """One line for each row and what it is compared with; empty where nothing is known."""
    of_row = ["variant", "evaluation", "metric", "seeds", "mean", "sd"]
    intervals = ("over_seeds", "over_images", "family_over_seeds", "family_over_images")
    edges = [f"{name}_{edge}" for name in intervals[:2] for edge in ("low", "high")]
    changes = [f"difference_{name}_{edge}" for name in intervals for edge in ("low", "high")]
    yield [*of_row, *edges, "baseline", "baseline_evaluation", "pairs", "difference", *changes, "verdict"]
    for row in result.rows:
        seeds = [one.seed for one in row.values if one.seed is not None]
        own = [row.variant, row.evaluation, row.metric, len(seeds), row.mean, row.deviation]
        own += [edge for name in intervals[:2] for edge in _edges(getattr(row, name))]
        compared = [one for one in result.differences if _key(one) == _key(row)]
        for one in compared:
            limits = [edge for name in intervals for edge in _edges(getattr(one, name))]
            yield [*own, one.baseline, one.baseline_evaluation, one.seeds, one.difference, *limits, one.verdict]
        if not compared:
            yield [*own, *[None] * (4 + len(changes) + 1)]


def seed_lines(result: Study) -> Iterator[list[Any]]:
    """One line for each figure of each run."""
    yield ["variant", "evaluation", "metric", "seed", "value"]
    for row in result.rows:
        for one in row.values:
            yield [row.variant, row.evaluation, row.metric, "all" if one.seed is None else one.seed, one.value]


def _key(one: StudyRow | StudyDifference) -> tuple[str, str, str]:
    return one.variant, one.evaluation, one.metric


def _edges(bounds: Bounds | None) -> tuple[float | None, float | None]:
    return (bounds.low, bounds.high) if bounds is not None else (None, None)


def _write_csv(path: Path, lines: Iterator[list[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
