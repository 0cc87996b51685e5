"""Formulas: LaTeX in a fence, which GitHub renders, becomes MathML, which browsers render without a script."""

from __future__ import annotations

from typing import Any

from latex2mathml.converter import convert
from pymdownx.superfences import SuperFencesException


def fence(source: str, language: str, css_class: str, *_: Any, **__: Any) -> str:
    """The HTML of one fence; a formula that cannot be read fails the build."""
    try:
        formula = convert(source.strip(), display="block")
    except Exception as error:
        raise SuperFencesException(f"In a fence of the language {language}: {error!r}\n{source}") from error
    if "<mi>&</mi>" in formula or "<mi>\\" in formula:  # what the converter does not know it leaves as it is
        raise SuperFencesException(f"In a fence of the language {language}, something is not known:\n{source}")
    return f'<div class="{css_class}">{formula}</div>'
