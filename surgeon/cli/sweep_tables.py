"""The tables of `surgeon sweep`: values, pairs of values, and the settings that they are reduced to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from surgeon.cli import columns
from surgeon.core.errors import count
from surgeon.report.wording import figure, gain_text, short_gain_text, verdict
from surgeon.report.wording import shown as presentation

if TYPE_CHECKING:
    from surgeon.results import Point, Sweep


def table_of_points(result: Sweep, names: list[str], narrow: bool) -> Table:
    table = Table()
    for axis in filter(None, (result.axis, result.second_axis)):
        table.add_column(axis, justify="right")
    with_images = not (narrow and result.second_axis)  # no room: the remark says which values a race has dropped
    if with_images:
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
        images = [f"{point.metrics.images:,}"] if with_images else []
        table.add_row(*values, *images, *figures, *remarks)
    return table


def table_of_pairs(result: Sweep) -> Table:
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
    return [short_gain_text(point.gain), point.dropped or verdict(point.gain)]


def table_of_settings(result: Sweep, narrow: bool) -> Table:
    where = "on held-out images" if result.confirming_images else "on the same images"
    best = {result.best: f"{result.best} ←"}
    records = {best.get(setting.name, setting.name): setting.reported for setting in result.settings}
    table = columns.by_metric(records, f"Settings, {where}")
    gains = (setting.gain(result.metric) for setting in result.settings)
    told = ("" if gain is None else short_gain_text(gain) if narrow else gain_text(gain) for gain in gains)
    table.add_row(f"gain in {presentation(result.metric).heading}", *told)
    return table
