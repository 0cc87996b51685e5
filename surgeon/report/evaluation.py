"""An evaluation as a picture and as a page: the figures, whether its confidence can be trusted, and where it fails."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgeon.core.errors import count
from surgeon.metrics import in_order
from surgeon.report import svg, wording
from surgeon.report.chart import Chart, FigureTable, Mark, Series
from surgeon.report.frame import render
from surgeon.report.png import save_picture

if TYPE_CHECKING:
    from surgeon.results import Breakdown, ClassFigures, ConfidenceBin, Evaluation

MOST_CLASSES = 20
"""Rows of the table of the worst classes."""
MOST_THUMBNAILS = 12
"""Of the surest mistakes that have a picture."""


def evaluation_page(result: Evaluation, thumbnails: Sequence[bytes] = ()) -> str:
    """The whole result as one HTML page; `thumbnails` are PNGs of the surest mistakes, from the first on."""
    behind = _breakdown(result)
    pictures = [base64.b64encode(picture).decode() for picture in thumbnails]
    return render(
        "evaluation.html.j2",
        result,
        result=result,
        sentences=in_sentences(result),
        metrics=[metric for metric in in_order() if result.metrics.value(metric.name) is not None],
        charts=svg.drawings(_charts(behind)),
        gains={gain.metric: gain for gain in one_view.gains} if (one_view := result.against_one_view) else {},
        worst=worst_first(behind.classes)[:MOST_CLASSES] if _several_images(behind) else [],
        confusions=behind.confusions if _several_images(behind) else [],
        pictured=[(one, picture) for one, picture in zip(behind.mistakes, pictures, strict=False) if picture],
        behind=behind,
        facts=facts_of(result),
    )


def in_sentences(result: Evaluation) -> list[str]:
    """What was found, the most important first."""
    figures, behind = result.metrics, _breakdown(result)
    return [
        f"{figures.accuracy:.2%} of {count(figures.images, 'image')} are classified correctly "
        f"(95%: {figures.accuracy_low:.2%} to {figures.accuracy_high:.2%}).",
        *_on_confidence(result),
        *_on_classes(behind),
        *_on_views(result),
    ]


def _on_confidence(result: Evaluation) -> list[str]:
    figures, behind = result.metrics, _breakdown(result)
    mean = sum(one.images * one.confidence for one in behind.bins) / figures.images
    surplus = mean - figures.accuracy
    judged = "more" if surplus > 0 else "less"
    found = [
        f"It is {abs(100 * surplus):.1f} points {judged} confident than right: its mean confidence is {mean:.1%}, "
        f"the calibration error (ECE) {figures.ece:.4f}."
    ]
    if figures.temperature is not None and math.isfinite(figures.cross_entropy):
        found.append(
            f"A temperature of {figures.temperature:.3f}, fitted on these images, takes the cross-entropy from "
            f"{figures.cross_entropy:.4f} to {figures.scaled_cross_entropy:.4f}."
        )
    return found


def _on_classes(behind: Breakdown) -> list[str]:
    if len(behind.classes) < 2 or not behind.confusions or behind.confusions[0].images < 2:
        return []  # a single image says nothing about its class
    worst, often = worst_first(behind.classes)[0], behind.confusions[0]
    actual, predicted = wording.class_name(often.actual), wording.class_name(often.predicted)
    return [
        f"The worst class is {wording.class_name(worst.name)} ({worst.correct:,} of {count(worst.images, 'image')}); "
        f"the most frequent mistake takes {actual} for {predicted} ({count(often.images, 'image')})."
    ]


def _on_views(result: Evaluation) -> list[str]:
    if (one := result.against_one_view) is None:
        return []
    gain = wording.gain_text(one.gains[0])
    return [
        f"{result.views} views ({result.tta}) instead of one: gain in accuracy {gain}, at "
        f"{one.times_the_time:.1f} times the time."
    ]


def worst_first(classes: Sequence[ClassFigures]) -> list[ClassFigures]:
    """By accuracy; of equal ones, those with more images, of which it is more certain."""
    return sorted(classes, key=lambda one: (one.accuracy, -one.images, one.name))


def _breakdown(result: Evaluation) -> Breakdown:
    assert result.breakdown is not None, "only an evaluation with its breakdown has a report"
    return result.breakdown


def _several_images(behind: Breakdown) -> bool:
    """Whether classes have images enough for figures of their own: one alone says nothing about its class."""
    return any(one.images > 1 for one in behind.classes)


def _charts(behind: Breakdown) -> list[Chart]:
    return [_reliability(behind), _histogram(behind), *([_by_class(behind)] if _several_images(behind) else [])]


def _reliability(behind: Breakdown) -> Chart:
    marks = [
        Mark(
            x=100 * one.confidence,
            y=100 * one.accuracy,
            interval=(100 * one.accuracy_low, 100 * one.accuracy_high),
            exact=one.accuracy,
            text=f"{count(one.images, 'image')} at {one.confidence:.1%} confidence: {one.accuracy:.1%} right",
        )
        for one in behind.bins
    ]
    return Chart(
        "reliability",
        "Accuracy by confidence",
        "confidence (%)",
        [Series("accuracy of the images in a bin", marks)],
        unit="%",
        x_range=(0, 100),
        y_range=(0, 100),
        table="confidence",
        intervals_name="95% interval",
        diagonal_name="as confident as right",
    )


def _histogram(behind: Breakdown) -> Chart:
    """The share of the images in every bin, also in empty ones."""
    images, bins = sum(one.images for one in behind.bins), _number_of_bins(behind)
    inside = {_place(one): one.images for one in behind.bins}
    marks = [
        Mark(
            x=place,
            y=100 * inside.get(place, 0) / images,
            exact=inside.get(place, 0),
            text=f"confidence {place / bins:.0%} to {(place + 1) / bins:.0%}: {count(inside.get(place, 0), 'image')}",
        )
        for place in range(bins)
    ]
    return Chart(
        "histogram",
        "Images by confidence",
        "confidence (%)",
        bars=marks,
        unit="%",
        y_range=(0, 1.05 * max(mark.y for mark in marks)),
        x_ticks=[(share * bins / 5 - 0.5, f"{20 * share}") for share in range(6)],
        table="confidence",
    )


def _number_of_bins(behind: Breakdown) -> int:
    return round(1 / (behind.bins[0].high - behind.bins[0].low))


def _place(one: ConfidenceBin) -> int:
    return round(one.low / (one.high - one.low))


def _by_class(behind: Breakdown) -> Chart:
    sorted_classes = worst_first(behind.classes)
    room = len(sorted_classes) <= MOST_CLASSES
    marks = [
        Mark(
            x=number,
            y=100 * one.accuracy,
            interval=(100 * one.accuracy_low, 100 * one.accuracy_high) if room else None,
            exact=one.accuracy,
            text=f"{wording.class_name(one.name)}: {one.accuracy:.1%} of {count(one.images, 'image')}",
        )
        for number, one in enumerate(sorted_classes)
    ]
    return Chart(
        "classes",
        "Accuracy by class",
        f"{len(marks):,} classes, worst first",
        bars=marks,
        unit="%",
        y_range=(0, 100),
        table="classes",
    )


def facts_of(result: Evaluation) -> list[tuple[str, Any]]:
    """How the result was made, as names and values; what does not apply is left out."""
    facts = [
        ("rewrites", result.rewrites),
        ("predicts by", result.prediction_by),
        ("data", f"{result.data}, split {result.split}, {count(result.metrics.images, 'image')}"),
        ("classes", wording.matched_text(result.matched_classes)),
        ("unreadable images left out", ", ".join(result.bad_images)),
        ("images whose logits are not numbers", result.metrics.nan_images),
        ("preprocessing", wording.preprocessing_text(result.preprocessing)),
        ("test-time augmentation", result.tta and f"{result.tta}, {result.views} views per image"),
        ("device", f"{result.device}, {result.precision}"),
        ("engine", wording.engine_text(result)),
        ("time", f"{result.seconds:,.1f} s, {result.images_per_second:,.0f} images/s"),
        ("logits", result.logits_file),
        ("checkpoint with the temperature", result.checkpoint),
    ]
    return [(name, value) for name, value in facts if value]


def evaluation_picture(result: Evaluation, path: Path) -> None:
    """The three charts and every figure as a PNG."""
    title = f"{result.model} on {result.data} ({result.split}, {count(result.metrics.images, 'image')})"
    save_picture(title, [*_charts(_breakdown(result)), figures_table(result)], path)


def figures_table(result: Evaluation) -> FigureTable:
    """A line for every metric: its name, its value and the 95% interval."""
    lines = []
    for metric in in_order():
        value, interval = result.metrics.value(metric.name), result.intervals.get(metric.name)
        if value is not None:
            between = " to ".join(map(metric.shown.figure, interval)) if interval else ""
            lines.append((f"{metric.shown.label} {wording.arrow(metric.name)}", metric.shown.figure(value), between))
    return FigureTable("Figures, with 95% intervals", lines)
