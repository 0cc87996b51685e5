"""Curves of a sweep: for the terminal and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from surgeon.report import wording

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from surgeon.results import Point, Sweep

COLOURS = ("#1f6f8b", "#c77d2e")
_CHOSEN_COLOUR = "#b8324a"


class Curve(NamedTuple):
    """One measure against the swept value; `percent` says how to label it."""

    label: str
    points: Mapping[float, float]
    percent: bool = False


class Spot(NamedTuple):
    """Where a swept value lies on the curve of a metric, with the 95% interval of its gain if that is known."""

    value: float
    height: float
    low: float | None
    high: float | None
    point: Point

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    def scaled(self, factor: float) -> Spot:
        low, high = (None, None) if self.interval is None else (factor * edge for edge in self.interval)
        return self._replace(height=factor * self.height, low=low, high=high)


def panels(sweep: Sweep) -> list[tuple[str, ...]]:
    """The metrics to draw, those of one panel together."""
    common: list[tuple[str, ...]] = [("accuracy",), ("cross-entropy", "scaled-cross-entropy")]
    return common if any(sweep.metric in names for names in common) else [*common, (sweep.metric,)]


def spots(sweep: Sweep, metric: str) -> list[Spot]:
    """The swept values on the curve of a metric, without those whose value is missing or not finite.

    By the metric of the sweep, every value is compared with the original on the same images. That
    places one that was dropped early, on few images, where it would be on all of them: at the
    original plus its gain.
    """
    original = original_value(sweep, metric)
    found = []
    for point in sweep.points:
        gain = point.gain if point.gain and point.gain.metric == metric else None
        height, low, high = point.metrics.value(metric), None, None
        if gain is not None and original is not None and math.isfinite(original + gain.difference):
            height = original + gain.difference
            if math.isfinite(gain.low) and math.isfinite(gain.high):
                low, high = original + gain.low, original + gain.high
        if height is not None and math.isfinite(height):
            found.append(Spot(point.value, height, low, high, point))
    return found


def original_value(sweep: Sweep, metric: str) -> float | None:
    """The figure of the network before surgery, on the images of the sweep; None if there is no finite one."""
    value = sweep.settings[0].choosing.value(metric)
    return value if value is not None and math.isfinite(value) else None


def sweep_in_terminal(sweep: Sweep) -> str:
    """The curve of the metric that was swept by, as text."""
    placed = spots(sweep, sweep.metric)
    name = wording.label(sweep.metric)
    if not placed:
        return f"No value of {sweep.axis} gave a finite {name}: there is nothing to draw."
    percent = wording.is_share(sweep.metric)
    curve = Curve(name, {spot.value: spot.height for spot in placed}, percent)
    dropped = [spot.value for spot in placed if spot.point.dropped]
    return draw_in_terminal(curve, sweep.axis, sweep.chosen, dropped)


def draw_in_terminal(curve: Curve, swept: str, chosen: float, dropped: Sequence[float] = ()) -> str:
    """The curve as text; values that were dropped early are hollow and off the line."""
    import plotext

    values = {x: 100 * y if curve.percent else y for x, y in curve.points.items()}
    lined = [x for x in values if x not in dropped]
    title = f"{curve.label}{' (%)' if curve.percent else ''} by {swept}; ● = chosen ({chosen:g})"
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless").plot_size(72, 14)
    if len(lined) > 1:
        figure.draw(figure.signal(lined, [values[x] for x in lined], marker="braille").lines())
    if dropped:
        figure.draw(figure.signal(list(dropped), [values[x] for x in dropped], marker="○"))
        title += ", ○ = dropped early"
    if chosen in values:
        figure.draw(figure.signal([chosen], [values[chosen]], marker="●"))
    figure.title(title)
    return str(plotext.uncolorize(figure.build().string()))


def sweep_picture(sweep: Sweep, path: Path) -> None:
    """Accuracy, both cross-entropies and the metric that was swept by, one beside the other as a PNG."""
    from matplotlib.figure import Figure

    chosen_panels = panels(sweep)
    figure = Figure(figsize=(5.4 * len(chosen_panels), 4.6), layout="constrained")
    for axes, names in zip(figure.subplots(1, len(chosen_panels), squeeze=False)[0], chosen_panels, strict=True):
        _panel(axes, sweep, names)
    images = f"{sweep.choosing_images:,} images"
    figure.suptitle(f"{sweep.model} on {sweep.data} ({sweep.split}, {images})", fontsize=13, fontweight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _panel(axes: Axes, sweep: Sweep, names: Sequence[str]) -> None:
    for name, colour in zip(names, COLOURS, strict=False):
        _line(axes, sweep, name, colour, "as it is" if len(names) > 1 and name == names[0] else None)
    chosen = f"chosen {sweep.axis} = {sweep.chosen:g}"
    axes.axvline(sweep.chosen, color=_CHOSEN_COLOUR, linestyle="--", linewidth=1.3, zorder=1.5, label=chosen)
    axes.set_title(wording.label(names[0]) + (" (%)" if wording.is_share(names[0]) else ""), loc="left", fontsize=12)
    axes.set_xlabel(sweep.axis)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    # Two curves of a panel explain their dots and dotted lines only once.
    entries = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(
        entries.values(), entries, frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2
    )


def _line(axes: Axes, sweep: Sweep, metric: str, colour: str, name: str | None) -> None:
    """A metric's curve, hollow where a race dropped the value, with its intervals and the original's level."""
    factor = 100 if wording.is_share(metric) else 1
    placed = [spot.scaled(factor) for spot in spots(sweep, metric)]
    full = [spot for spot in placed if not spot.point.dropped]
    early = [spot for spot in placed if spot.point.dropped]
    label = name or wording.label(metric).removeprefix("cross-entropy ")
    heights = [spot.height for spot in full]
    axes.plot([spot.value for spot in full], heights, "o-", color=colour, markersize=5, linewidth=1.8, label=label)
    _intervals(axes, full, early, colour)
    original = original_value(sweep, metric)
    if original is not None:
        axes.axhline(factor * original, color=colour, linewidth=1.1, linestyle=":", label="original network")
    if early:
        heights = [spot.height for spot in early]
        style: dict[str, Any] = {"color": colour, "markerfacecolor": "white", "markersize": 5, "alpha": 0.75}
        axes.plot([spot.value for spot in early], heights, "o", **style, label="dropped early: on fewer images")
    for spot in placed:
        if spot.value == sweep.chosen:
            axes.plot(spot.value, spot.height, "o", color=_CHOSEN_COLOUR, markersize=8, zorder=5)


def _intervals(axes: Axes, full: Sequence[Spot], early: Sequence[Spot], colour: str) -> None:
    """A band along the curve, and bars at the values that are not on it."""
    # The original is compared with itself: there the band has no width.
    edges = [(spot.value, *(spot.interval or (spot.height, spot.height))) for spot in full]
    if any(spot.interval for spot in full):
        xs, lows, highs = zip(*edges, strict=True)
        axes.fill_between(xs, lows, highs, color=colour, alpha=0.16, linewidth=0, label="95% interval of the gain")
    for spot in early:
        if spot.interval:
            axes.vlines(spot.value, *spot.interval, color=colour, alpha=0.4, linewidth=1.5)
