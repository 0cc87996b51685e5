"""Tables on narrow terminals: words and numbers stay whole where there is room for them."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.table import Table

from surgeon.cli.widths import keep_words

WORDS = (
    "statistics never updated in this network",
    "-12.345",
    "example-weighted:alpha=0.05",
    "a b c d e f g h i j k l",
)


def shown(width: int) -> str:
    table = Table()
    for index in range(len(WORDS)):
        table.add_column(f"heading {index}", overflow="fold")
    table.add_row(*WORDS)
    console = Console(file=io.StringIO(), width=width)
    keep_words(table, console)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@pytest.mark.parametrize("width", [66, 80, 100, 120, 160])
def test_no_word_is_broken(width: int) -> None:
    text = shown(width)
    assert max(map(len, text.splitlines())) <= width
    found = set(re.split(r"[\s│┃]+", text))
    assert {word for words in WORDS for word in words.split()} <= found


def test_a_terminal_too_narrow_for_the_words_still_shows_all() -> None:
    assert max(map(len, shown(30).splitlines())) <= 30
