"""Figures in tables, the same in every command; a narrow terminal gets fewer columns and shorter ones."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from surgeon.cli import output
from surgeon.core.errors import count
from surgeon.report.wording import arrow, figure, headed
from surgeon.report.wording import shown as presentation

if TYPE_CHECKING:
    from surgeon.metrics import Metrics

_NARROW = 11
"""The width that a heading has in a narrow table, unless a word is longer."""


def every(records: Iterable[Metrics]) -> list[str]:
    """All metrics that any of the records has a value of."""
    from surgeon.metrics import in_order

    found = list(records)
    return [m.name for m in in_order() if any(record.value(m.name) is not None for record in found)]


def shown(metric: str, narrow: bool) -> list[str]:
    """The metrics that a table shows if it lacks room for all: the essential ones, and the one that was chosen by."""
    from surgeon.metrics import in_order

    essential = [m.name for m in in_order() if m.essential]
    if narrow:
        return [essential[0], metric if metric != essential[0] else essential[1]]
    return list(dict.fromkeys((*essential, metric)))


def heading(metric: str, narrow: bool = False) -> str:
    words = headed(metric)
    return textwrap.fill(words, _NARROW, break_long_words=False) if narrow else words


def add_figures(table: Table, names: Sequence[str], metric: str, narrow: bool, emphasis: str = "bold") -> None:
    """One column for each metric to show."""
    for name in names:
        table.add_column(heading(name, narrow), justify="right", style=emphasis if name == metric else "")


def add_gain(table: Table, metric: str, narrow: bool) -> None:
    words = presentation(metric).heading
    table.add_column(f"gain in\n{textwrap.fill(words, _NARROW)}" if narrow else f"gain in {words}")


def by_metric(records: Mapping[str, Metrics], title: str | None = None) -> Table:
    """One row for every metric, and a last one for the fitted temperature: room for as many as there are."""
    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    for name in records:
        table.add_column(name, justify="right")
    for name in every(records.values()):
        table.add_row(escape(heading(name)), *(figure(name, record.value(name)) for record in records.values()))
    table.add_row("temperature", *(figure("temperature", record.temperature) for record in records.values()))
    return table


def tell(figures: Metrics) -> None:
    """One line for every metric."""
    images = count(figures.images, "image")
    if "score" in (figures.model_extra or {}):  # by a function of one's own, which is all there is then
        output.say(f"score {figures.score:.4f} (95%: {figures.score_low:.4f} to {figures.score_high:.4f}) on {images}")
        return
    table = Table(title=images, title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name in every([figures]):
        table.add_row(escape(f"{presentation(name).label} {arrow(name)}"), figure(name, figures.value(name)))
    table.add_row("temperature (fitted)", figure("temperature", figures.temperature))
    output.show(table)
