"""What the gate says of each figure, and its table."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from itertools import groupby

from ledger import Run
from timing import Figure, shown

WIDTH = 100
FAILING = ("MISSED", "WORSE", "GONE", "CRASHED")
LEAST_TOLERANCE, WIDEST_TOLERANCE = 0.10, 0.30
"""Relative: ratios of idle runs differ by up to 9%, and a tolerance wider than the second would tolerate everything."""
SECONDS = "s"
"""What is measured in them has a limit alone: the same processor is twice as fast at some times as at others."""
LIKE = ("cores", "processor")
"""What two machines have in common if their figures are compared; another torch is no excuse."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    script: str
    title: str
    name: str
    verdict: str
    found: str = ""
    committed: str = ""
    limit: str = ""


def judge(script: str, run: Run, committed: Run | None, *, partial: bool = False) -> list[Row]:
    """One row for each figure, found or committed; `partial`: the script was free to leave figures out."""
    rows = []
    comparable = committed is not None and all(committed.conditions.get(key) == run.conditions[key] for key in LIKE)
    before = committed.by_name if committed is not None else {}
    for key, figure in run.by_name.items():
        old = before.get(key)
        verdict = _verdict(figure, old if comparable else None, known=old is not None)
        value = shown(old.value, old.unit) if old is not None else ""
        rows.append(Row(script, *key, verdict, shown(figure.value, figure.unit), value, figure.limit))
    if run.crashed:
        rows.append(Row(script, script, run.crashed, "CRASHED"))
    elif run.skipped:
        rows.append(Row(script, script, run.skipped, "skipped"))
    elif not partial and comparable:
        gone = (figure for key, figure in before.items() if key not in run.by_name)
        rows += [
            Row(script, old.title, old.name, "GONE", committed=shown(old.value, old.unit), limit=old.limit)
            for old in gone
        ]
    return rows


def _verdict(figure: Figure, old: Figure | None, *, known: bool) -> str:
    if not figure.kept:
        return "MISSED"
    if old is None:
        return "aim missed" if not figure.reached else "elsewhere" if known else "new"
    if figure.unit == SECONDS:
        return "ok"
    tolerance = min(max(LEAST_TOLERANCE, 2 * figure.noise, 2 * old.noise), WIDEST_TOLERANCE)
    worse, better = (figure.value, old.value) if figure.at_least is None else (old.value, figure.value)
    if figure.unit == "%":  # a difference, and no ratio
        worse, better = 100 + worse, 100 + better
    if worse > better * (1 + tolerance):
        return "WORSE"
    if not figure.reached:
        return "aim missed"
    return "better" if better > worse * (1 + tolerance) else "ok"


def table(rows: list[Row]) -> str:
    """Figures under their titles."""
    lines = [_line("figure", "found", "committed", "limit", "verdict"), "-" * WIDTH]
    for (script, title), group in groupby(rows, key=lambda row: (row.script, row.title)):
        lines += textwrap.wrap(script if title == script else f"{script}: {title}", WIDTH)
        for row in group:
            first, *rest = textwrap.wrap(row.name, 37) or [""]
            lines.append(_line(f"  {first}", row.found, row.committed, row.limit, row.verdict))
            lines += [f"    {more}" for more in rest]
    lines.append("-" * WIDTH)
    counts = {
        verdict: sum(row.verdict == verdict for row in rows) for verdict in dict.fromkeys(r.verdict for r in rows)
    }
    lines.append(", ".join(f"{number} {verdict}" for verdict, number in counts.items()))
    return "\n".join(lines)


def _line(name: str, found: str, committed: str, limit: str, verdict: str) -> str:
    return f"{name:<41}{found:>9} {committed:>10}  {limit:<25} {verdict}".rstrip()
