"""Lines and columns that break no word, no number and no interval, where there is room for that."""

from __future__ import annotations

import re

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

_FRAME = 3
"""Characters that a column takes besides its content: two of padding, one of frame."""
_INTERVAL = r"\S*\(95%: [^()]*\)\S*|[-+]?[\d.]+\S* (?:to|±) ?[-+\d]\S*"
_WORD = r"\S+(?: [↑↓])?"
_PART = r"\S+?(?:[:,/]+(?=\S)|[-._](?=[A-Za-z])|(?=\s|$))"
_KEPT = [re.compile(each) for each in (f"{_INTERVAL}|{_WORD}", f"{_INTERVAL}|{_PART}", _WORD, _PART)]
"""What stays in a line. The less room there is, the less: names and specs break first, intervals last."""


def wrapped(text: Text, width: int, kept: re.Pattern[str] = _KEPT[0]) -> Text:
    """The text in lines that are no wider, as far as what is to be kept allows; those that go on keep the indent."""
    lines = [part for line in text.split("\n", allow_blank=True) for part in _lines(line, width, kept)]
    return Text("\n").join(lines)


def _lines(line: Text, width: int, kept: re.Pattern[str]) -> list[Text]:
    plain = line.plain
    if len(plain) <= width:
        return [line]
    indent = len(plain) - len(plain.lstrip())
    lines: list[tuple[int, int]] = []
    start = end = 0
    for found in kept.finditer(plain):
        if end > indent and found.end() - start + (indent if lines else 0) > width:
            lines.append((start, end))
            start = found.start()
        end = found.end()
    lines.append((start, end))
    return [Text(" " * indent * (number > 0)) + line[low:high] for number, (low, high) in enumerate(lines)]


def keep_words(table: Table, console: Console) -> None:
    """Fix the widths of a table that is wider than the console: what can be wrapped is, words stay whole."""
    cells = [[_text(cell, console) for cell in (column.header, *column.cells)] for column in table.columns]
    whole = [max(map(_width, texts), default=0) for texts in cells]
    room = console.width - _FRAME * len(cells) - 1
    if sum(whole) <= room or any(column.width is not None for column in table.columns):
        return
    kept = [_KEPT[0]] * len(cells)
    least = [_least(*each) for each in zip(table.columns, cells, kept, whole, strict=True)]
    for fewer in _KEPT[1:]:
        for place in sorted(range(len(cells)), key=least.__getitem__, reverse=True):
            reduced = _least(table.columns[place], cells[place], fewer, whole[place])
            if sum(least) > room and reduced < least[place]:
                least[place], kept[place] = reduced, fewer
    if sum(least) > room:
        return
    # Headings give way before what stands below them.
    below = [max(low, *map(_width, texts[1:]), 0) for low, texts in zip(least, cells, strict=True)]
    least = below if sum(below) <= room else least
    spare, wanted = room - sum(least), sum(whole) - sum(least)
    for column, texts, keep, low, high in zip(table.columns, cells, kept, least, whole, strict=True):
        width = column.width = low + spare * (high - low) // wanted
        column.header = wrapped(texts[0], width, keep)
        column._cells[:] = [wrapped(text, width, keep) for text in texts[1:]]


def _least(column: Column, texts: list[Text], kept: re.Pattern[str], whole: int) -> int:
    if column.no_wrap:
        return whole
    return max((len(found) for text in texts for found in kept.findall(text.plain)), default=0)


def _text(cell: object, console: Console) -> Text:
    return cell if isinstance(cell, Text) else console.render_str(str(cell))


def _width(text: Text) -> int:
    return max(map(len, text.plain.splitlines()), default=0)
