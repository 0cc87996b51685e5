"""The result of a sweep as a picture and as a web page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgeon.core.errors import listing
from surgeon.report import svg, wording
from surgeon.report.chart import Chart, Mark, Range, Series, padded
from surgeon.report.curves import (
    Spot,
    at_infinity,
    gaps,
    left_out,
    not_drawn,
    original_value,
    panels,
    series_name,
    spots,
    without_a_place,
)
from surgeon.report.frame import heading, render
from surgeon.report.heat import heat_maps
from surgeon.report.png import save_picture

if TYPE_CHECKING:
    from surgeon.results import Learned, Point, Sweep


def sweep_picture(sweep: Sweep, path: Path) -> None:
    """Accuracy, both cross-entropies and the metric that was swept by, one beside the other as a PNG."""
    title = f"{sweep.model} on {sweep.data} ({sweep.split}, {sweep.choosing_images:,} images)"
    charts = _curve_charts(sweep) if sweep.second_axis is None else heat_maps(sweep)
    save_picture(title, [*charts, *_trade_off(sweep)], path)


def sweep_page(sweep: Sweep) -> str:
    """The whole result of a sweep as one HTML page."""
    return render(
        "sweep.html.j2",
        sweep,
        sweep=sweep,
        charts=svg.drawings([*(_curve_charts(sweep) if sweep.second_axis is None else []), *_trade_off(sweep)]),
        not_drawn=_not_drawn(sweep),
        maps=svg.heat_drawings(heat_maps(sweep)) if sweep.second_axis is not None else [],
        learned=[_LearnedView(sweep, one) for one in sweep.learned],
        facts=_facts(sweep),
    )


def _curve_charts(sweep: Sweep) -> list[Chart]:
    return [_curve_chart(sweep, names) for names in panels(sweep)]


def _trade_off(sweep: Sweep) -> list[Chart]:
    """The mean error under the conditions against the accuracy on clean images, every value a point."""
    marks = [
        Mark(
            100 * point.clean.accuracy,
            100 * (1 - point.metrics.accuracy),
            1 - point.metrics.accuracy,
            f"{sweep.axis} {point.value:g}: clean accuracy {point.clean.accuracy:.2%}, mean error under conditions "
            f"{1 - point.metrics.accuracy:.2%}{_about(point)}",
            hollow=point.dropped is not None,
            chosen=sweep.is_chosen(point),
        )
        for point in sweep.points
        if point.clean is not None
    ]
    if not marks:
        return []
    return [
        Chart(
            "trade-off",
            "Mean error under conditions against clean accuracy",
            "accuracy on clean images, %",
            [Series(f"values of {sweep.axes}, in order", marks)],
            unit="%",
            remark="Best is at the bottom right; the larger dot is chosen.",
        )
    ]


def _curve_chart(sweep: Sweep, names: Sequence[str]) -> Chart:
    shown = wording.shown(names[0])
    series = [_series(sweep, name, names, shown.factor) for name in names]
    drawn = {mark.x for one in series for mark in one.marks}
    elsewhere = {value for name in names for value in without_a_place(sweep, name)}
    return Chart(
        names[0],
        f"{heading(shown.label)} {wording.arrow(names[0])}".strip(),
        sweep.axis,
        series,
        chosen=_chosen(sweep),
        unit=shown.suffix,
        x_range=_swept_range(sweep),
        y_range=_close_up(series, wording.arrow(names[0]) != "↓"),
        left_out=[value for value in _on_the_scale(sweep) if value not in drawn | elsewhere],
        remark=" ".join(filter(None, (at_infinity(sweep), not_drawn(sweep, names)))),
    )


def _series(sweep: Sweep, name: str, names: Sequence[str], factor: int) -> Series:
    placed = spots(sweep, name)
    level = original_value(sweep, name)
    return Series(
        name=series_name(name, names),
        marks=[_mark(sweep, name, spot, factor) for spot in placed],
        level=None if level is None else factor * level,
        gaps=gaps(sweep, [spot.value for spot in placed if not spot.point.dropped]),
    )


def _swept_range(sweep: Sweep) -> Range:
    """The same for all charts, whatever can be drawn in them."""
    return padded(_on_the_scale(sweep) or [0.0, 1.0], 0.03)


def _on_the_scale(sweep: Sweep) -> list[float]:
    return [point.value for point in sweep.points if math.isfinite(point.value)]


def _chosen(sweep: Sweep) -> float | None:
    return sweep.chosen if math.isfinite(sweep.chosen) else None


def _mark(sweep: Sweep, metric: str, spot: Spot, factor: int) -> Mark:
    scaled, name = spot.scaled(factor), wording.label(metric)
    shown = wording.figure(metric, spot.height)
    return Mark(
        x=spot.value,
        y=scaled.height,
        interval=scaled.interval,
        hollow=spot.point.dropped is not None,
        chosen=spot.value == sweep.chosen,
        exact=spot.height,
        text=f"{sweep.axis} {spot.value:g}: {name} {'about ' if spot.point.dropped else ''}{shown}{_about(spot.point)}",
    )


def _about(point: Point) -> str:
    if not point.dropped:
        return ""
    images = f"{point.metrics.images:,} images"
    if point.dropped == "interpolated":
        return f", interpolated on {images}"
    return f", estimated from {images}, then {point.dropped}"


def _close_up(charted: Sequence[Series], higher_is_better: bool) -> Range | None:
    """A range that shows what may be better, where values that are far worse would flatten it; else None."""
    sign = 1 if higher_is_better else -1
    edges = [
        sign * (edge - one.level)
        for one in charted
        if one.level is not None
        for mark in one.marks
        for edge in (mark.y, *(mark.interval or ()))
    ]
    if not edges or max(edges) <= 0 or min(edges) > -6 * max(edges):
        return None
    levels = [sign * one.level for one in charted if one.level is not None]
    low, high = sorted(sign * edge for edge in (min(levels) - 3 * max(edges), max(levels) + 1.1 * max(edges)))
    return low, high


def _not_drawn(sweep: Sweep) -> str:
    """Which curves are left out, in a sentence."""
    if not (names := left_out(sweep)):
        return ""
    compared = f"the race compared most values by {wording.label(sweep.metric)} only"
    return f"Not drawn: {listing([wording.label(name) for name in names])}, because {compared}. The table has the rest."


class _LearnedView:
    """What was learned, layer by layer, as the template shows it."""

    def __init__(self, sweep: Sweep, learned: Learned) -> None:
        self.record = learned
        self.metric = sweep.metric
        self.layers = [(name, *_spread(alphas)) for name, alphas in learned.alphas.items()]
        self.gap = learned.gain_choosing - learned.gain_confirming
        marks = [
            Mark(
                x=index,
                y=mean,
                interval=(low, high) if low < high else None,
                exact=mean,
                text=f"{name}: {mean:.3f}" + (f" ({low:.3f} to {high:.3f})" if low < high else ""),
            )
            for index, (name, mean, low, high) in enumerate(self.layers)
            if math.isfinite(mean)
        ]
        title = f"{sweep.axis.capitalize()} learned {learned.kind}"
        x_label = f"{len(self.layers)} layers in the network's order"
        key = f"learned-{learned.kind}"
        spread = "Lines: from the lowest to the highest channel." if any(mark.interval for mark in marks) else ""
        chart = Chart(key, title, x_label, bars=marks, base=sweep.original, table="layers", remark=spread)
        self.charts = svg.drawings([chart])


def _spread(alphas: float | tuple[float, ...]) -> tuple[float, float, float]:
    """Mean, lowest and highest of a layer."""
    numbers = alphas if isinstance(alphas, tuple) else (alphas,)
    return sum(numbers) / len(numbers), min(numbers), max(numbers)


def _facts(sweep: Sweep) -> list[tuple[str, Any]]:
    """How the result was made, as names and values; what does not apply is left out."""
    facts = [
        ("rewrites", sweep.rewrites),
        ("data", f"{sweep.data}, split {sweep.split}"),
        ("images", _image_counts(sweep)),
        ("classes", wording.matched_text(sweep.matched_classes)),
        ("unreadable images left out", ", ".join(sweep.bad_images)),
        ("preprocessing", sweep.preprocessing and wording.preprocessing_text(sweep.preprocessing)),
        ("method", f"{sweep.method} by {wording.label(sweep.metric)} over {len(sweep.points)} values of {sweep.axes}"),
        ("chosen under", ", ".join(sweep.under)),
        ("confirmed under", ", ".join(sweep.confirmed_under)),
        ("most points of accuracy to lose on clean images", "" if sweep.max_clean_loss is None else
         f"{100 * sweep.max_clean_loss:g}"),
        ("test-time augmentation", sweep.tta and f"{sweep.tta}, {sweep.views} views per image"),
        ("device", f"{sweep.device}, {sweep.precision}"),
        ("image forward passes", f"{sweep.image_forwards:,}"),
        ("interpolation", sweep.interpolation and wording.interpolation_text(sweep.interpolation, sweep.axis)),
        ("time", f"{sweep.seconds:,.1f} s{wording.time_text(sweep.spent)}"),
        ("checkpoint", sweep.checkpoint),
    ]  # fmt: skip
    return [(name, value) for name, value in facts if value]


def _image_counts(sweep: Sweep) -> str:
    used = {
        "to estimate statistics from": sweep.estimating_images,
        "to choose on": sweep.choosing_images,
        "held out to confirm": sweep.confirming_images,
    }
    return ", ".join(f"{number:,} {what}" for what, number in used.items() if number)
