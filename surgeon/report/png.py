"""Charts as a picture: several beside one another, drawn by matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgeon.report import wording
from surgeon.report.chart import (
    AnyChart,
    Chart,
    FigureTable,
    GroupedBars,
    HeatMap,
    Mark,
    Matrix,
    RowChart,
    Series,
    clipped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1f6f8b", "#c77d2e", "#1a6b3c", "#7a4fa3")
ACCENT = "#b8324a"
MOST_DOTS = 40
"""More would hide the line that they are on."""
MOST_WRITTEN = 12
"""Cells of a larger matrix have no room for numbers."""
MOST_ROWS = 20
"""Rows of a heat map are lower than its columns are wide."""


def save_picture(title: str, charts: Sequence[AnyChart], path: Path) -> None:
    """Draw the charts beside one another into a PNG."""
    from matplotlib.figure import Figure

    widths, heights = zip(*map(_size, charts), strict=True)
    figure = Figure(figsize=(sum(widths), max(heights)), layout="constrained")
    figure.suptitle(title, fontsize=13, fontweight="bold")
    all_axes = figure.subplots(1, len(charts), squeeze=False, width_ratios=widths)[0]
    for axes, chart in zip(all_axes, charts, strict=True):
        axes.set_title(textwrap.fill(chart.title, 30 if isinstance(chart, Matrix) else 48), loc="left", fontsize=12)
        match chart:
            case Chart():
                _draw_chart(axes, chart)
            case RowChart():
                _draw_rows(axes, chart)
            case Matrix():
                _draw_matrix(axes, chart)
            case HeatMap():
                _draw_heat_map(axes, chart)
            case GroupedBars():
                _draw_groups(axes, chart)
            case FigureTable():
                _write_figures(axes, chart)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _size(chart: AnyChart) -> tuple[float, float]:
    """Width and height in inches."""
    match chart:
        case HeatMap(rows=rows, wide=True):
            return 11.0, 2.2 + 0.34 * max(len(rows), 4)
        case Chart() | HeatMap() | FigureTable():
            return 5.4, 4.6
        case RowChart(rows=rows, named=named):
            return 5.4 if named else 4.0, 1.9 + 0.3 * max(len(rows), 6)
        case GroupedBars(groups=groups, series=series):
            return 5.4, max(4.6, 1.6 + 0.13 * len(groups) * (len(series) + 0.8))
        case Matrix(names=names):
            return 4.7, 1.9 + 0.3 * max(len(names), 6)


def _draw_chart(axes: Axes, chart: Chart) -> None:
    for number, series in enumerate(chart.series):
        _draw_series(axes, series, COLOURS[number % len(COLOURS)], chart.intervals_name)
    if chart.bars:
        _draw_bars(axes, chart)
    if chart.chosen is not None:
        label = f"chosen {chart.x_label} = {chart.chosen:g}"
        axes.axvline(chart.chosen, color=ACCENT, linestyle="--", linewidth=1.3, zorder=1.5, label=label)
    for end in chart.ends:
        axes.axvline(end, color=ACCENT, linestyle=":", linewidth=1.3, zorder=1.5, label=chart.ends_name)
    if chart.diagonal_name:
        ends = max(chart.horizontal[0], chart.vertical[0]), min(chart.horizontal[1], chart.vertical[1])
        axes.plot(ends, ends, ":", color=COLOURS[1], label=chart.diagonal_name)
    if chart.note:
        axes.plot([], [], " ", label=textwrap.fill(chart.note, 34))
    axes.set_xlim(*chart.horizontal)
    axes.set_ylim(*chart.vertical)
    _write_ticks(axes.set_xticks, chart.horizontal_ticks())
    _write_ticks(axes.set_yticks, chart.vertical_ticks())
    axes.set_xlabel(chart.x_label)
    _frame(axes)
    # Two curves of a panel explain their dots and dotted lines only once.
    entries = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    if entries:
        legend = axes.legend(entries.values(), entries, frameon=False, fontsize=9, loc="upper center", ncols=2)
        legend.set_bbox_to_anchor((0.5, -0.15))


def _draw_series(axes: Axes, series: Series, colour: str, intervals_name: str) -> None:
    """A curve with its intervals and the level to compare with; what is not on it is hollow."""
    style = "o-" if len(series.marks) <= MOST_DOTS else "-"
    for run in series.stretches:
        _plot(axes, run, style, color=colour, linewidth=1.8, label=series.name)
        if len(run) > 1 and any(mark.interval for mark in run):
            # The original is compared with itself: there the band has no width.
            edges = [(mark.x, *(mark.interval or (mark.y, mark.y))) for mark in run]
            xs, lows, highs = zip(*edges, strict=True)
            axes.fill_between(xs, lows, highs, color=colour, alpha=0.16, linewidth=0, label=intervals_name)
    hollow = [mark for mark in series.marks if mark.hollow]
    for mark in (*hollow, *(run[0] for run in series.stretches if len(run) == 1)):
        if mark.interval:
            axes.vlines(mark.x, *mark.interval, color=colour, alpha=0.4, linewidth=1.5, label=intervals_name)
    if series.level is not None:
        axes.axhline(series.level, color=colour, linewidth=1.1, linestyle=":", label="original network")
    if hollow:
        label = textwrap.fill(wording.DROPPED, 26)
        _plot(axes, hollow, "o", color=colour, markerfacecolor="white", alpha=0.75, label=label)
    for mark in series.marks:
        if mark.chosen:
            axes.plot(mark.x, mark.y, "o", color=ACCENT, markersize=8, zorder=5)


def _plot(axes: Axes, marks: Sequence[Mark], style: str, **looks: Any) -> None:
    axes.plot([mark.x for mark in marks], [mark.y for mark in marks], style, markersize=5, **looks)


def _draw_bars(axes: Axes, chart: Chart) -> None:
    heights = [mark.y - chart.base for mark in chart.bars]
    width = 0.7 if len(chart.bars) < 100 else 1.0
    axes.bar([mark.x for mark in chart.bars], heights, width, bottom=chart.base, color=COLOURS[0])
    for mark in chart.bars:
        if mark.interval:
            axes.vlines(mark.x, *mark.interval, color="0.25", alpha=0.6, linewidth=1.2)


def _draw_rows(axes: Axes, chart: RowChart) -> None:
    for place, row in enumerate(chart.rows):
        colour = ACCENT if row.strong else COLOURS[0]
        if math.isfinite(row.value):
            axes.plot(row.value, place, "D" if row.strong else "o", color=colour, markersize=7, zorder=3)
        if row.interval:
            axes.hlines(place, *row.interval, color=colour, alpha=0.45, linewidth=2.2, zorder=2)
        dots = [value for value, _ in row.dots if math.isfinite(value)]
        axes.plot(dots, [place + 0.24] * len(dots), "o", color="0.45", markersize=3, zorder=2)
    axes.axhline(sum(not row.strong for row in chart.rows) - 0.5, color="0.6", linewidth=0.8)
    axes.set_xlim(*chart.horizontal)
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    _write_ticks(axes.set_xticks, chart.horizontal_ticks())
    axes.set_yticks(range(len(chart.rows)), [clipped(row.name) if chart.named else "" for row in chart.rows])
    _frame(axes)


def _draw_matrix(axes: Axes, chart: Matrix) -> None:
    largest = max(max(row) for row in chart.values) or 1.0
    axes.imshow(chart.values, cmap="Blues", vmin=0, vmax=1.7 * largest)
    names = [clipped(name) for name in chart.names]
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    if len(names) <= MOST_WRITTEN:
        for y, row in enumerate(chart.values):
            for x, value in enumerate(row):
                text = wording.MISSING if x == y else f"{value:.1f}"
                axes.text(x, y, text, ha="center", va="center", fontsize=9)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _draw_heat_map(axes: Axes, chart: HeatMap) -> None:
    shades = [[math.nan] * len(chart.columns) for _ in chart.rows]
    for cell in chart.cells:
        shades[cell.row][cell.column] = chart.strength(cell)
    axes.imshow(shades, cmap="Blues", vmin=0, vmax=2.0, aspect="auto")
    written = len(chart.columns) <= MOST_WRITTEN and len(chart.rows) <= MOST_ROWS
    for cell in chart.cells:
        mark = " ★" if cell.chosen else " ○" if cell.original else ""
        if written or mark:
            text = f"{cell.written}{mark}" if written else mark.strip()
            weight = "bold" if cell.chosen else "normal"
            axes.text(cell.column, cell.row, text, ha="center", va="center", fontsize=8, weight=weight)
    _write_ticks(axes.set_xticks, list(enumerate(chart.columns))[:: 1 + len(chart.columns) // MOST_WRITTEN])
    _write_ticks(axes.set_yticks, list(enumerate(chart.rows))[:: 1 + len(chart.rows) // MOST_ROWS])
    axes.set_xlabel(f"{chart.x_label}\n{textwrap.fill(chart.note, 140 if chart.wide else 60)}", fontsize=9)
    axes.set_ylabel(chart.y_label, fontsize=9)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _draw_groups(axes: Axes, chart: GroupedBars) -> None:
    thick = 0.8 / len(chart.series)
    for number, (name, marks) in enumerate(chart.series):
        places = [group + thick * (number - (len(chart.series) - 1) / 2) for group in range(len(marks))]
        colour = COLOURS[number % len(COLOURS)]
        axes.barh(places, [mark.y for mark in marks], thick * 0.92, color=colour, label=clipped(name))
        for place, mark in zip(places, marks, strict=True):
            if mark.interval:
                axes.hlines(place, *mark.interval, color="0.25", alpha=0.6, linewidth=1.0)
    axes.set_yticks(range(len(chart.groups)), list(chart.groups))
    axes.invert_yaxis()
    _write_ticks(axes.set_xticks, chart.horizontal_ticks())
    _frame(axes)
    if len(chart.series) > 1:
        axes.legend(frameon=False, fontsize=9, loc="upper center", ncols=2).set_bbox_to_anchor((0.5, -0.08))


def _write_figures(axes: Axes, chart: FigureTable) -> None:
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(max(len(chart.lines), 12), 0))
    size = min(9.0, 110 / max(len(chart.lines), 1))
    for place, (name, value, interval) in enumerate(chart.lines):
        axes.text(0, place + 0.5, name, fontsize=size, va="center")
        axes.text(0.72, place + 0.5, value, fontsize=size, va="center", ha="right", weight="bold")
        axes.text(1, place + 0.5, interval, fontsize=0.85 * size, va="center", ha="right", color="0.35")


def _write_ticks(set_ticks: Any, ticks: Sequence[tuple[float, str]]) -> None:
    set_ticks([at for at, _ in ticks], [text for _, text in ticks])


def _frame(axes: Axes) -> None:
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
