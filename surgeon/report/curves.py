"""Which curves a sweep gives, and how they look in the terminal."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from surgeon.core.errors import count
from surgeon.report import wording
from surgeon.report.chart import ticks, unbroken

if TYPE_CHECKING:
    from surgeon.results import Point, Sweep


class Spot(NamedTuple):
    """Where a swept value is drawn by a metric, with the 95% interval of its gain if that is known."""

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
    """The metrics to draw, those of one panel together; without those that a race left (nearly) nothing to draw of."""
    sparse = left_out(sweep)
    drawn = (tuple(name for name in names if name not in sparse) for names in _candidates(sweep))
    return [names for names in drawn if names]


def left_out(sweep: Sweep) -> list[str]:
    """The metrics that a race compared only few of the values by: their curves would be nearly empty."""
    names = (name for names in _candidates(sweep) for name in names if name != sweep.metric)
    return [name for name in names if 2 * len(without_a_place(sweep, name)) > len(sweep.points)]


def _candidates(sweep: Sweep) -> list[tuple[str, ...]]:
    primary = sweep.points[0].metrics.primary
    common: list[tuple[str, ...]] = [(primary,), ("cross-entropy", "scaled-cross-entropy")]
    return common if any(sweep.metric in names for names in common) else [*common, (sweep.metric,)]


def spots(sweep: Sweep, metric: str) -> list[Spot]:
    """The swept values that can be drawn by a metric: neither missing, nor infinite, nor of fewer images than others.

    An infinite value has no place on a scale either; where it is the original's, the level shows it.
    What a race dropped early was measured on few images, and those may be easier or harder than all of them.
    The comparison with the original on the same images places it: at the original plus its gain.
    """
    original = original_value(sweep, metric)
    found = []
    for point in sweep.points:
        height, low, high = None if point.dropped else point.metrics.value(metric), None, None
        gain = point.gain_by(metric)
        if original is not None and gain is not None:
            if point.dropped:
                height = original + gain.difference
            if math.isfinite(gain.low) and math.isfinite(gain.high):
                low, high = original + gain.low, original + gain.high
        on_a_scale = sweep.second_axis is not None or math.isfinite(point.value)
        if height is not None and math.isfinite(height) and on_a_scale:
            found.append(Spot(point.value, height, low, high, point))
    return found


def without_a_place(sweep: Sweep, metric: str) -> list[float]:
    """The values that a race dropped early and that it did not compare with the original by this metric."""
    return [point.value for point in sweep.points if point.dropped and point.gain_by(metric) is None]


def series_name(name: str, names: Sequence[str]) -> str:
    """What to call a curve among those of its panel."""
    if len(names) == 1:
        return wording.label(name)
    return "as it is" if name == names[0] else wording.label(name).removeprefix(f"{wording.label(names[0])} ")


def not_drawn(sweep: Sweep, names: Sequence[str]) -> str:
    """Which values a panel is without, and why, in a sentence; nothing if it has them all."""
    missing = {name: values for name in names if (values := without_a_place(sweep, name))}
    if not missing:
        return ""
    number = count(max(map(len, missing.values())), "value")
    which = "" if len(missing) == len(names) else f" {' and '.join(series_name(name, names) for name in missing)}"
    return (
        f"Not drawn{which}: {number} dropped early, compared with the original by {wording.label(sweep.metric)} only."
    )


def at_infinity(sweep: Sweep) -> str:
    """Where the original is that no curve reaches, in a sentence; nothing if one does."""
    return f"The original lies at {sweep.axis} = {sweep.original:g}." if math.isinf(sweep.original) else ""


def gaps(sweep: Sweep, on_the_line: Collection[float]) -> list[float]:
    """The swept values that a line of the others must not run across as if it had been there."""
    return [point.value for point in sweep.points if point.value not in on_the_line]


def _stretches(sweep: Sweep, placed: Sequence[Spot]) -> list[list[Spot]]:
    """What was measured on all images, in stretches to draw a line through."""
    full = [spot for spot in placed if not spot.point.dropped]
    return unbroken(full, attrgetter("value"), gaps(sweep, [spot.value for spot in full]))


def original_value(sweep: Sweep, metric: str) -> float | None:
    """The figure of the network before surgery, on the images of the sweep; None if there is no finite one."""
    value = sweep.settings[0].choosing.value(metric)
    return value if value is not None and math.isfinite(value) else None


def sweep_in_terminal(sweep: Sweep) -> str:
    """The curve of the metric that was swept by, as text, and what its marks are."""
    import plotext

    shown = wording.shown(sweep.metric)
    name = shown.label
    placed = [spot.scaled(shown.factor) for spot in spots(sweep, sweep.metric)]
    if not placed:
        return f"No value of {sweep.axis} gave a finite {name}: there is nothing to draw."
    early = [spot for spot in placed if spot.point.dropped]
    stretches = _stretches(sweep, placed)
    alone = [run[0] for run in stretches if len(run) == 1]
    chosen = [spot for spot in placed if spot.value == sweep.chosen]
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless").plot_size(72, 14)
    for run in stretches:
        if len(run) > 1:
            figure.draw(_signal(run, "braille").lines())
    for marked, marker in ((early, "○"), (alone, "•"), (chosen, "●")):
        if marked:
            figure.draw(_signal(marked, marker))
    figure.title(f"{shown.axis} by {sweep.axis}")
    lowest, highest = (edge(spot.value for spot in placed) for edge in (min, max))
    if lowest < highest:  # plotext itself would write 1,000 images as 1.0e3
        figure.ruler("lower").ticks(*map(list, zip(*ticks(lowest, highest, wanted=6), strict=True)))
    legend = [f"● chosen ({sweep.chosen:g})", *([f"○ {wording.DROPPED}"] if early else [])]
    return f"{plotext.uncolorize(figure.build().string())}{'   '.join(legend)}"


def _signal(placed: Sequence[Spot], marker: str) -> Any:
    import plotext

    return plotext.figure.signal([spot.value for spot in placed], [spot.height for spot in placed], marker=marker)
