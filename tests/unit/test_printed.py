"""What `print` and notebooks show of a record: what its command tells people, with nothing left of its markup."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
import torch
from torch import nn

import surgeon
from surgeon.cli.printed import TOLD_BY
from surgeon.core.readable import Readable
from surgeon.results import Sweep
from tests.unit.ensemble_record import ensemble
from tests.unit.evaluation_record import evaluation
from tests.unit.sweep_record import points, sweep
from tests.unit.training_record import run as finetuning

RECORDS: dict[str, Callable[..., Readable]] = {
    "sweep": sweep,
    "evaluation": evaluation,
    "ensemble": ensemble,
    "finetuning": finetuning,
}


class Shown(HTMLParser):
    """The tags and the text of HTML; tags have to be closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(record: Readable) -> Shown:
    html = record._repr_html_()
    assert html is not None
    return Shown(html)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("columns", ["80", "100", "120", "160"])
def test_a_record_prints_as_wide_as_the_terminal(name: str, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = str(RECORDS[name]()).splitlines()
    assert any(line.startswith("┃") for line in lines)
    assert max(len(line) for line in lines if line[:1] in "┏┃┡│└├") <= int(columns)
    assert not any(mark in line for line in lines for mark in ("[bold]", "[/]", "\x1b", "[dim]"))
    assert not any(line.endswith(" ") for line in lines)


def test_print_and_a_notebook_say_the_same_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    record = sweep(metric="accuracy", points=points("accuracy"))
    html = shown(record)
    assert html.tags <= {"div", "pre", "table", "caption", "thead", "tbody", "tr", "th", "td", "br"}
    for text in (str(record), html.text):
        assert all(sentence in text for sentence in record.summary)
        assert "accuracy ↑" in text
        assert "cross-entropy ↓" in text
        assert "+2.70 points" in text, "the gain of alpha 0.3"
        assert "●" in text, "the curve"


@pytest.mark.parametrize("text", ["<b>x</b>", "[bold]x[/]", "</div><script>alert(1)</script>", "[/]"])
def test_names_cannot_become_markup(text: str) -> None:
    record = sweep(model=text, data=text)
    assert text in str(record)
    html = shown(record)
    assert text in html.text
    assert not html.tags & {"b", "script"}


def test_figures_of_a_network_of_ones_own() -> None:
    batches = [(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3)]
    figures = surgeon.evaluate(nn.Linear(3, 3), batches)
    assert f"{figures.accuracy:.2%}" in str(figures)
    assert "8 images" in str(figures)
    scored = surgeon.evaluate(nn.Linear(3, 3), batches, score=lambda answer, _: answer.sum(1))
    assert f"score {scored.score:.4f} (95%: " in str(scored)
    assert f"{scored.score:.4f}" in shown(scored).text


def test_whoever_tells_of_a_record_is_there() -> None:
    for place in TOLD_BY.values():
        module, _, name = place.partition(":")
        assert callable(getattr(importlib.import_module(f"surgeon.cli.{module}"), name or "tell"))


def test_a_part_of_a_record_prints_as_pydantic_does() -> None:
    part = sweep().settings[0]
    assert str(part).startswith("name='original'")
    assert part._repr_html_() is None


def test_a_record_that_was_read_from_a_file_prints_too() -> None:
    """In a process that has imported nothing but the record's type."""
    code = "import sys; from surgeon.results.sweep import Sweep; print(Sweep.model_validate_json(sys.stdin.read()))"
    document = json.dumps(sweep().model_dump(mode="json"))
    done = subprocess.run([sys.executable, "-c", code], input=document, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("digits-resnet8 on digits, split validation")
    assert done.stderr == ""
    assert isinstance(sweep(), Sweep)
