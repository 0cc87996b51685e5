"""An ensemble as a picture and as a page: what each member and each combination reaches, and who disagrees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from surgeon.report import svg, wording
from surgeon.report.chart import Matrix, RowChart, RowMark
from surgeon.report.frame import render
from surgeon.report.png import save_picture

if TYPE_CHECKING:
    from surgeon.metrics import Metrics
    from surgeon.results import Ensemble


DARKEST = 50
"""Of 100: text on a darker cell is hard to read."""


class EnsembleRow(NamedTuple):
    """One network or combination; `combined` tells them apart, `passes` counts views too."""

    name: str
    metrics: Metrics
    combined: bool
    passes: int


def rows(result: Ensemble) -> list[EnsembleRow]:
    """All members, then what was made of them."""
    names = wording.short_names([member.name for member in result.members])
    members = [EnsembleRow(names[member.name], member.metrics, False, result.views) for member in result.members]
    combinations = [EnsembleRow(one.name, one.metrics, True, one.passes * result.views) for one in result.combinations]
    return members + combinations


def ensemble_picture(result: Ensemble, path: Path) -> None:
    """Accuracy and cross-entropy of every row, and the disagreement of every pair, as a PNG."""
    shown = rows(result)
    title = f"{len(result.members)} members on {result.data} ({result.split}, {shown[0].metrics.images:,} images)"
    save_picture(title, [_accuracies(shown), _cross_entropies(shown), _disagreement(result, shown)], path)


def _accuracies(shown: Sequence[EnsembleRow]) -> RowChart:
    return RowChart(
        "accuracy",
        "Accuracy, with 95% intervals",
        [
            RowMark(
                name=row.name,
                value=100 * row.metrics.accuracy,
                exact=row.metrics.accuracy,
                text=f"{row.name}: {wording.figure('accuracy', row.metrics.accuracy)}",
                interval=(100 * row.metrics.accuracy_low, 100 * row.metrics.accuracy_high),
                strong=row.combined,
            )
            for row in shown
        ],
        unit="%",
        note="With the 95% interval of each by itself. Differences on the same images are more certain: see the gains.",
    )


def _cross_entropies(shown: Sequence[EnsembleRow]) -> RowChart:
    marks = [
        RowMark(
            name=row.name,
            value=row.metrics.cross_entropy,
            exact=row.metrics.cross_entropy,
            text=f"{row.name}: {wording.figure('cross-entropy', row.metrics.cross_entropy)}",
            strong=row.combined,
        )
        for row in shown
    ]
    return RowChart("cross-entropy", "Cross-entropy", marks, named=False)


def _disagreement(result: Ensemble, shown: Sequence[EnsembleRow]) -> Matrix:
    return Matrix(
        f"Disagreement, % of images (mean {100 * result.mean_disagreement:.2f})",
        [row.name for row in shown if not row.combined],
        [[100 * value for value in row] for row in result.disagreement],
    )


def ensemble_page(result: Ensemble) -> str:
    """The whole result as one HTML page."""
    shown = rows(result)
    names = wording.short_names([member.name for member in result.members])
    largest = max(max(row) for row in result.disagreement) or 1.0
    return render(
        "ensemble.html.j2",
        result,
        result=result,
        rows=shown,
        names=names,
        drawn=[(svg.row_drawing(chart), chart) for chart in (_accuracies(shown), _cross_entropies(shown))],
        shade=lambda value: round(DARKEST * value / largest),
        facts=_facts(result),
    )


def _facts(result: Ensemble) -> list[tuple[str, Any]]:
    """How the result was made, as names and values; what does not apply is left out."""
    kinds = dict.fromkeys(wording.preprocessing_text(member.preprocessing) for member in result.members)
    choice, statistics = result.choice, result.statistics
    facts = [
        ("data", f"{result.data}, split {result.split}, {result.members[0].metrics.images:,} images"),
        ("classes", wording.matched_text(result.matched_classes)),
        ("unreadable images left out", ", ".join(result.bad_images)),
        ("preprocessing", " · ".join(kinds)),
        ("averaged", f"{result.merge}, every member counts alike"),
        ("chosen on", choice and f"{choice.images:,} images, {'the other half' if choice.half else choice.split}"),
        ("statistics of the soup", statistics and f"{statistics.images:,} images, split {statistics.split}"),
        ("test-time augmentation", result.tta and f"{result.tta}, {result.views} views per image"),
        ("device", f"{result.device}, {result.precision}"),
        ("time", f"{result.seconds:,.1f} s"),
        ("checkpoint", result.checkpoint),
    ]
    return [(name, value) for name, value in facts if value]
