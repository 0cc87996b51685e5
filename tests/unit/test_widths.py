"""Tables on narrow terminals: words and numbers stay whole where there is room for them."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from surgeon.cli.widths import keep_words, wrapped

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


def fitted(width: int, headings: Sequence[str], *rows: Sequence[str]) -> list[str]:
    table = Table(*headings)
    for row in rows:
        table.add_row(*row)
    console = Console(file=io.StringIO(), width=width)
    keep_words(table, console)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


def test_intervals_stay_whole_while_names_can_be_broken() -> None:
    gain, name = "+3.00 points (95%: -1.00 to +7.00), not significant", "example-weighted:alpha=0.05"
    lines = "\n".join(fitted(72, ("setting", "accuracy ↑", "gain", "others"), (name, "91.50%", gain, "0.10 ±0.02")))
    for kept in ("(95%: -1.00 to +7.00),", "0.10 ±0.02", "accuracy ↑", "alpha=0.05"):
        assert kept in lines
    assert name not in lines, "there is no room"


def test_specs_break_between_their_parts_and_numbers_never() -> None:
    lines = fitted(48, ("layer", "rewrites", "k"), ("blocks.12.conv_pwl", "ghost:size=16,running=batch", "-1.25"))
    words = {word for line in lines for word in re.split(r"[\s│┃]+", line)}
    assert {"blocks.12.conv_pwl", "ghost:size=16,", "running=batch", "-1.25"} <= words


def test_headings_give_way_before_what_stands_below_them() -> None:
    row = ("+3.00 points (95%: -1.00 to +7.00)", "100.00%")
    lines = fitted(58, ("gain over the original", "accuracy against clean images"), row)
    assert any(row[0] in line for line in lines)


def test_sentences_break_between_words_and_keep_their_indent() -> None:
    text = Text.from_markup("  [bold]note:[/] accuracy +3.00 points (95%: -1.00 to +7.00), not significant")
    lines = wrapped(text, 40).plain.splitlines()
    assert lines == ["  note: accuracy +3.00 points", "  (95%: -1.00 to +7.00), not significant"]
    assert wrapped(text, 80).plain == text.plain
    assert wrapped(Text("a" * 50), 40).plain == "a" * 50


def test_a_terminal_too_narrow_for_the_words_still_shows_all() -> None:
    assert max(map(len, shown(30).splitlines())) <= 30
