"""Records that people can read: `print` and notebooks show of them what the command line tells."""

from __future__ import annotations

import importlib

_renderer = ""


def rendered_by(module: str) -> None:
    """Name the module that renders records: its `as_text` and `as_html` return None for what they do not know."""
    global _renderer
    _renderer = module


class Readable:
    """What a record is as text and as HTML, beside what its other base says."""

    def __str__(self) -> str:
        text: str | None = importlib.import_module(_renderer).as_text(self) if _renderer else None
        return super().__str__() if text is None else text

    def _repr_html_(self) -> str | None:
        html: str | None = importlib.import_module(_renderer).as_html(self) if _renderer else None
        return html
