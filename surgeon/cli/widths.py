"""Widths of a table's columns that break no word and no number, where there is room for that."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

_FRAME = 3
"""Characters that a column takes besides its content: two of padding, one of frame."""


def keep_words(table: Table, console: Console) -> None:
    """Fix the widths of a table that is wider than the console: what can be wrapped is, words stay whole."""
    cells = [_lines(column, console) for column in table.columns]
    whole = [max((len(line) for line in lines), default=0) for lines in cells]
    least = [
        width if column.no_wrap else max((len(word) for line in lines for word in line.split()), default=0)
        for column, lines, width in zip(table.columns, cells, whole, strict=True)
    ]
    room = console.width - _FRAME * len(cells) - 1
    if sum(whole) <= room or sum(least) > room or any(column.width is not None for column in table.columns):
        return
    spare, wanted = room - sum(least), sum(whole) - sum(least)
    for column, low, high in zip(table.columns, least, whole, strict=True):
        column.width = low + spare * (high - low) // wanted


def _lines(column: Column, console: Console) -> list[str]:
    texts = (console.render_str(cell) if isinstance(cell, str) else cell for cell in (column.header, *column.cells))
    return [line for text in texts if isinstance(text, Text) for line in text.plain.splitlines()]
