"""What people read in a terminal: lines break between words, and a command to copy is not broken at all."""

from __future__ import annotations

import io

import pytest

from surgeon.cli import output
from surgeon.cli.output import _Output

SENTENCE = "Gain over one view: accuracy +3.00 points (95%: -1.00 to +7.00), not significant; price: 2 views."


def told(monkeypatch: pytest.MonkeyPatch, text: str, *, terminal: bool) -> list[str]:
    file = io.StringIO()
    people = _Output(file=file, width=40, highlight=False, soft_wrap=True, force_terminal=terminal, color_system=None)
    monkeypatch.setattr(output, "people", people)
    output.say(text)
    return file.getvalue().splitlines()


def test_a_terminal_breaks_no_word_and_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = told(monkeypatch, SENTENCE, terminal=True)
    assert len(lines) > 2
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == SENTENCE
    assert any("(95%: -1.00 to +7.00)," in line for line in lines)


def test_what_is_piped_stays_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, SENTENCE, terminal=False) == [SENTENCE]


def test_a_command_to_copy_stays_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    command = "To continue: surgeon sweep digits-resnet8 --data digits --alpha 0:0.3:13 -o runs/digits"
    assert told(monkeypatch, command, terminal=True) == [command]
