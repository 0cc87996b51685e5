"""What `print(result)` and a notebook show of a record: what the command that makes such records tells people."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Sequence
from html import escape
from io import StringIO
from itertools import zip_longest
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from surgeon.cli import output

TOLD_BY = {
    "Affinity": "affinity",
    "Conversion": "convert",
    "DataShift": "inspect:tell_data_shift",
    "Ensemble": "ensemble",
    "Evaluation": "eval",
    "Export": "export",
    "FineTuning": "finetune",
    "Inspection": "inspect",
    "Merging": "merge",
    "Metrics": "columns",
    "Prediction": "predict",
    "Recalibration": "recalibrate",
    "Reestimation": "recalibrate:tell_reestimation",
    "Robustness": "robustness",
    "Shift": "inspect:tell_shift",
    "Study": "study",
    "StudyPlan": "study:tell_plan",
    "Sweep": "sweep",
    "Verification": "verify",
}
"""The module of the command line that tells what a record of this type holds; by its function `tell`, or another."""

NARROWEST, USUAL = 60, 100


def as_text(record: object) -> str | None:
    """The record as the command prints it, as wide as the terminal is."""
    if (tell := _teller(record)) is None:
        return None
    written = StringIO()
    width = max(NARROWEST, shutil.get_terminal_size((USUAL, 24)).columns)
    console = Console(file=written, width=width, color_system=None, highlight=False)

    def write(item: str | Table) -> None:
        console.print(item, soft_wrap=isinstance(item, str))

    with output.told_to(write, console):
        tell(record)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def as_html(record: object) -> str | None:
    """The record for a notebook: lines of text, and tables as tables."""
    if (tell := _teller(record)) is None:
        return None
    parts: list[str] = []
    # Tables of a page can be as wide as they like.
    with output.told_to(lambda item: parts.append(_html(item)), Console(width=sys.maxsize, file=StringIO())):
        tell(record)
    return "\n".join(['<div class="surgeon">', *parts, "</div>"])


def _teller(record: object) -> Callable[[Any], None] | None:
    place = TOLD_BY.get(type(record).__name__)
    if place is None or not type(record).__module__.startswith("surgeon."):
        return None
    module, _, name = place.partition(":")
    tell: Callable[[Any], None] = getattr(importlib.import_module(f"surgeon.cli.{module}"), name or "tell")
    return tell


def _html(item: str | Table) -> str:
    if isinstance(item, str):
        tag = "pre" if "\n" in item else "div"  # a curve of characters needs letters of one width
        return f"<{tag}>{_plain(item)}</{tag}>"
    rows = "\n".join(
        _row("td", item.columns, cells)
        for cells in zip_longest(*(column.cells for column in item.columns), fillvalue="")
    )
    caption = f'<caption style="text-align: left">{_cell(item.title)}</caption>' if item.title else ""
    headings = _row("th", item.columns, [column.header for column in item.columns])
    return f"<table>{caption}\n<thead>{headings}</thead>\n<tbody>\n{rows}\n</tbody></table>"


def _row(tag: str, columns: Sequence[Column], cells: Sequence[Any]) -> str:
    told = zip(columns, cells, strict=True)
    cells = [f'<{tag} style="text-align: {column.justify}">{_cell(cell)}</{tag}>' for column, cell in told]
    return f"<tr>{''.join(cells)}</tr>"


def _cell(content: Any) -> str:
    return _plain(content).replace("\n", "<br>")


def _plain(content: Any) -> str:
    return escape(content.plain if isinstance(content, Text) else Text.from_markup(str(content)).plain)
