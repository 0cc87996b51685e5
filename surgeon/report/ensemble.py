"""An ensemble as a picture and as a page: what each member and each combination reaches, and who disagrees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from surgeon.report import svg, wording
from surgeon.report.frame import render

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from surgeon.metrics import Metrics
    from surgeon.results import Ensemble

_MEMBER_COLOUR, _COMBINATION_COLOUR = "#1f6f8b", "#b8324a"
_MOST_WRITTEN = 12
"""Cells of a larger matrix have no room for numbers."""


class Row(NamedTuple):
    """One network or combination; `combined` tells them apart."""

    name: str
    metrics: Metrics
    combined: bool
    passes: int


def rows(result: Ensemble) -> list[Row]:
    """All members, then what was made of them."""
    names = wording.short_names([member.name for member in result.members])
    members = [Row(names[member.name], member.metrics, False, 1) for member in result.members]
    combinations = [Row(one.name, one.metrics, True, one.passes) for one in result.combinations]
    return members + combinations


def ensemble_picture(result: Ensemble, path: Path) -> None:
    """Accuracy and cross-entropy of every row, and the disagreement of every pair, as a PNG."""
    from matplotlib.figure import Figure

    shown = rows(result)
    height = 1.9 + 0.3 * max(len(shown), 6)
    figure = Figure(figsize=(14, height), layout="constrained")
    first, second, third = figure.subplots(1, 3, width_ratios=(1.15, 0.85, 1))
    _dots(first, shown, [(100 * row.metrics.accuracy) for row in shown], "accuracy (%)")
    for place, row in enumerate(shown):
        interval = (100 * row.metrics.accuracy_low, 100 * row.metrics.accuracy_high)
        first.hlines(place, *interval, color=_colour(row), alpha=0.45, linewidth=2.2, zorder=2)
    _dots(second, shown, [row.metrics.cross_entropy for row in shown], "cross-entropy")
    second.set_yticks(range(len(shown)), [""] * len(shown))
    _matrix(third, result, [row.name for row in shown if not row.combined])
    images = f"{shown[0].metrics.images:,} images"
    title = f"{len(result.members)} members on {result.data} ({result.split}, {images})"
    figure.suptitle(title, fontsize=13, fontweight="bold")
    figure.savefig(path, dpi=150)


def _colour(row: Row) -> str:
    return _COMBINATION_COLOUR if row.combined else _MEMBER_COLOUR


def _dots(axes: Axes, shown: Sequence[Row], values: Sequence[float], title: str) -> None:
    for place, (row, value) in enumerate(zip(shown, values, strict=True)):
        if math.isfinite(value):
            axes.plot(value, place, "D" if row.combined else "o", color=_colour(row), markersize=7, zorder=3)
    axes.set_yticks(range(len(shown)), [_clipped(row.name) for row in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    members = sum(not row.combined for row in shown)
    axes.axhline(members - 0.5, color="0.6", linewidth=0.8)
    axes.set_title(title + (", with 95% intervals" if title.startswith("accuracy") else ""), loc="left", fontsize=12)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _matrix(axes: Axes, result: Ensemble, names: Sequence[str]) -> None:
    percent = [[100 * value for value in row] for row in result.disagreement]
    largest = max(max(row) for row in percent) or 1.0
    axes.imshow(percent, cmap="Blues", vmin=0, vmax=1.7 * largest)
    axes.set_yticks(range(len(names)), [_clipped(name) for name in names])
    axes.set_xticks(range(len(names)), [_clipped(name) for name in names], rotation=45, ha="right")
    if len(names) <= _MOST_WRITTEN:
        for y, row in enumerate(percent):
            for x, value in enumerate(row):
                axes.text(x, y, "–" if x == y else f"{value:.1f}", ha="center", va="center", fontsize=9)
    axes.set_title(f"disagreement, % of images (mean {100 * result.mean_disagreement:.2f})", loc="left", fontsize=12)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _clipped(name: str, most: int = 28) -> str:
    return name if len(name) <= most else f"…{name[-most + 1 :]}"


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
        forest=_forest(shown),
        shade=lambda value: round(70 * value / largest),
        facts=_facts(result),
    )


class Place(NamedTuple):
    """A row of the chart, in the coordinates of the picture."""

    name: str
    y: int
    dot: float
    low: float
    high: float
    row: Row


class Forest(NamedTuple):
    """Accuracies below one another, with their intervals."""

    left: int
    right: int
    bottom: int
    height: int
    ticks: Sequence[svg.Tick]
    places: Sequence[Place]


def _forest(shown: Sequence[Row]) -> Forest:
    edges = [100 * edge for row in shown for edge in (row.metrics.accuracy_low, row.metrics.accuracy_high)]
    names = [_clipped(row.name, 24) for row in shown]
    left, right, step = 18 + round(7.2 * max(map(len, names))), svg.RIGHT, 24
    scale = svg.Scale(*svg.padded(edges), left, right)
    bottom = 12 + step * len(shown)
    values = svg.ticks(scale.low, scale.high, wanted=3)
    ticks = [svg.Tick(scale(at), text) for at, text in zip(values, svg.tick_texts(values, "%"), strict=True)]
    places = [
        Place(
            name=name,
            y=22 + step * number,
            dot=scale(100 * row.metrics.accuracy),
            low=scale(100 * row.metrics.accuracy_low),
            high=scale(100 * row.metrics.accuracy_high),
            row=row,
        )
        for number, (name, row) in enumerate(zip(names, shown, strict=True))
    ]
    return Forest(left, right, bottom, bottom + 26, ticks, places)


def _facts(result: Ensemble) -> list[tuple[str, Any]]:
    """How the result was made, as names and values; what does not apply is left out."""
    kinds = dict.fromkeys(wording.preprocessing_text(member.preprocessing) for member in result.members)
    choice, statistics = result.choice, result.statistics
    facts = [
        ("data", f"{result.data}, split {result.split}, {result.members[0].metrics.images:,} images"),
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
