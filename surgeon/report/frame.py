"""The frame of every web page: one file that needs nothing else, asks nobody, and embeds its record."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from surgeon.metrics import in_order
from surgeon.report import meanings, svg, wording

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from surgeon.results import Result


_MEASURES = ("WIDTH", "HEIGHT", "LEFT", "RIGHT", "TOP", "BOTTOM", "DOT")


def render(template: str, record: Result, **values: Any) -> str:
    """A template that extends the frame, with the record in it."""
    embedded = _embedded(record)
    shown = [metric for metric in in_order() if f'"{metric.key}"' in embedded]
    return _environment().get_template(template).render(**{"metrics": shown, **values}, record=embedded)


def heading(words: str) -> str:
    """With a capital letter, and abbreviations as they are."""
    return words[0].upper() + words[1:]


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("surgeon.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["exact"] = _exact
    environment.filters["prose"] = _prose
    environment.globals.update(
        dropped=wording.DROPPED,
        figure=wording.figure,
        label=wording.label,
        class_name=wording.class_name,
        difference=wording.difference,
        gain_text=wording.gain_text,
        gained=wording.gained,
        headed=lambda name: unbroken(wording.headed(name)),
        labelled=lambda name: unbroken(f"{wording.label(name)} {wording.arrow(name)}".strip()),
        improved=wording.improved,
        interval_text=wording.interval_text,
        meanings_in=meanings.meanings_in,
        shown=wording.shown,
        unbroken=unbroken,
        unit=wording.unit,
        verdict=wording.verdict,
        frame={name.lower(): getattr(svg, name) for name in _MEASURES},
    )
    return environment


def unbroken(words: str) -> str:
    """With its arrow in the same line as the last word, and numbers in that of the hyphen before them."""
    words = re.sub(r"-(?=\d)", "-\N{WORD JOINER}", words)
    return words.replace(" ↑", "\N{NO-BREAK SPACE}↑").replace(" ↓", "\N{NO-BREAK SPACE}↓")


def _embedded(record: Result) -> Markup:
    """The record as JSON that cannot end the script element it is in."""
    from markupsafe import Markup

    return Markup(record.model_dump_json().replace("<", "\\u003c"))


def _prose(sentence: str) -> Markup:
    """A sentence whose commands, between backticks, look like commands, and whose intervals stay in a line."""
    from markupsafe import Markup, escape

    commands = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(sentence)))
    return Markup(re.sub(r"\(95%: [^()]*\)", r'<span class="whole">\g<0></span>', commands))


def _exact(value: float | None) -> str:
    return "" if value is None else repr(value)
