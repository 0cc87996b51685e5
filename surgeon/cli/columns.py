"""Columns of figures, the same in every table; a narrow terminal gets fewer of them and shorter ones."""

from __future__ import annotations

from rich.table import Table

_HEADINGS = {"scaled-cross-entropy": "at best temperature", "ece": "ECE"}
_NARROW = {"cross-entropy": "cross-\nentropy", "scaled-cross-entropy": "at best\ntemper-\nature"}


def shown(metric: str, narrow: bool) -> list[str]:
    """The metrics that a table has columns for, that which something was chosen by among them."""
    if narrow:
        return ["accuracy", "cross-entropy" if metric == "accuracy" else metric]
    return list(dict.fromkeys(("accuracy", "cross-entropy", "scaled-cross-entropy", "ece", metric)))


def heading(metric: str, narrow: bool = False) -> str:
    wide = _HEADINGS.get(metric, metric)
    return _NARROW.get(metric, wide) if narrow else wide


def add_figures(table: Table, metric: str, narrow: bool, emphasis: str = "bold") -> None:
    """One column for each metric to show."""
    for name in shown(metric, narrow):
        table.add_column(heading(name, narrow), justify="right", style=emphasis if name == metric else "")


def add_gain(table: Table, metric: str, narrow: bool) -> None:
    table.add_column(f"gain in\n{heading(metric, narrow)}" if narrow else f"gain in {heading(metric)}")
