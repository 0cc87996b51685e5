"""Geometry of charts: scales, ticks and paths in the coordinates of an SVG. Templates only write down what is here."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeVar

WIDTH, HEIGHT = 440, 290
LEFT, RIGHT, TOP, BOTTOM = 58, 426, 16, 244
DOT = 4.2

Range = tuple[float, float]
T = TypeVar("T")


class Mark(NamedTuple):
    """One value to draw; `exact` is the number it stands for, `text` what to say about it."""

    x: float
    y: float
    interval: Range | None
    hollow: bool
    chosen: bool
    exact: float
    text: str


class Series(NamedTuple):
    """Marks of one measure, and the level to compare them with; the line goes across no gap."""

    name: str
    marks: Sequence[Mark]
    level: float | None
    gaps: Sequence[float] = ()


class Tick(NamedTuple):
    at: float
    text: str


class Dot(NamedTuple):
    x: float
    y: float
    whisker: Range | None
    mark: Mark


class Line(NamedTuple):
    """A series in the coordinates of the picture."""

    name: str
    path: str
    band: str
    level: float | None
    dots: Sequence[Dot]

    @property
    def room(self) -> float:
        """How far apart the dots are."""
        return round((RIGHT - LEFT) / max(1, len(self.dots)), 2)

    @property
    def is_dense(self) -> bool:
        """Whether dots would hide the line that they are on."""
        return self.room < 2 * DOT


class Bar(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    whisker: Range | None
    exact: float
    text: str


@dataclass(frozen=True)
class Scale:
    """Maps the range of a quantity to a range of the picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Chart:
    """Lines in a frame, ready to be written as SVG."""

    key: str
    title: str
    description: str
    x_label: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    chosen: Tick | None
    lines: Sequence[Line]
    bars: Sequence[Bar] = ()
    note: str = ""
    ends: Sequence[float] = ()
    """Where something that took several values of x came to its end."""
    ends_name: str = ""
    intervals_name: str = "95% interval of the gain"
    diagonal: str = ""
    """Where both quantities are equal, as a path."""
    diagonal_name: str = ""

    @property
    def has_hollow(self) -> bool:
        return any(dot.mark.hollow for line in self.lines for dot in line.dots)

    @property
    def has_intervals(self) -> bool:
        return any(dot.whisker for line in self.lines for dot in line.dots)

    @property
    def has_level(self) -> bool:
        return any(line.level is not None for line in self.lines)


def ticks(low: float, high: float, wanted: int = 5, whole: bool = False) -> list[float]:
    """About as many round numbers as wanted, between low and high."""
    rough = max((high - low) / wanted, 1.0 if whole else 0.0)
    magnitude = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = min((magnitude * factor for factor in factors), key=lambda size: abs(math.log(size / rough)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def tick_texts(values: Sequence[float], unit: str = "") -> list[str]:
    """The numbers with just as many digits as tell them apart."""
    spacing = values[1] - values[0] if len(values) > 1 else abs(values[0]) or 1.0
    digits = next((d for d in range(9) if all(abs(round(v, d) - v) < spacing * 1e-3 for v in values)), 9)
    return [f"{value:z.{digits}f}{unit}" for value in values]


def padded(values: Sequence[float], share: float = 0.06) -> Range:
    """The range of the values with some air; a single value gets a range around it."""
    low, high = min(values), max(values)
    air = share * (high - low) or max(abs(high) * 0.05, 1e-6)
    return low - air, high + air


def line_chart(
    key: str,
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    chosen: float | None = None,
    unit: str = "",
    x_range: Range | None = None,
    y_range: Range | None = None,
    left_out: Sequence[float] = (),
    whole: bool = False,
    table: str = "all values",
    ends: Sequence[float] = (),
    ends_name: str = "",
    intervals_name: str = "95% interval of the gain",
    diagonal_name: str = "",
    remark: str = "",
) -> Chart | None:
    """Series over the same quantity, in a frame; None if there is nothing to draw.

    `whole` says that the quantity counts something, `table` where the page has the numbers,
    `diagonal_name` what it means that both quantities are equal, if anything.
    """
    marks = [mark for one in series for mark in one.marks]
    if not marks:
        return None
    x = Scale(*(x_range or padded([mark.x for mark in marks], 0.03)), LEFT, RIGHT)
    y = Scale(*(y_range or padded(_extent(series))), BOTTOM, TOP)
    xs = sorted({mark.x for mark in marks})
    outside = sorted({mark.x for mark in marks if not y.holds(mark.y)})
    names = " and ".join(one.name for one in series)
    lists = (("Off the scale", outside), ("Left out because not finite", left_out))
    listed = [f"{why}: {x_label} {', '.join(f'{x:g}' for x in values)}." for why, values in lists if values]
    return Chart(
        key=key,
        title=title,
        description=f"{names} at {len(xs)} values of {x_label}, {xs[0]:g} to {xs[-1]:g}"
        f"{'' if chosen is None else f'; {chosen:g} was chosen'}. The table of {table} has the numbers.",
        x_label=x_label,
        x_ticks=_ticks(x, whole=whole),
        y_ticks=_ticks(y, unit),
        chosen=Tick(x(chosen), f"{chosen:g}") if chosen is not None and x.holds(chosen) else None,
        lines=[_line(one, x, y) for one in series],
        note=" ".join(filter(None, (*listed, remark))),
        ends=[x(end) for end in ends if x.holds(end)],
        ends_name=ends_name,
        intervals_name=intervals_name,
        diagonal=_diagonal(x, y) if diagonal_name else "",
        diagonal_name=diagonal_name,
    )


def _diagonal(x: Scale, y: Scale) -> str:
    ends = max(x.low, y.low), min(x.high, y.high)
    return _path([(x(end), y(end)) for end in ends])


def bar_chart(
    key: str,
    title: str,
    marks: Sequence[Mark],
    *,
    x_label: str,
    base: float,
    unit: str = "",
    x_ticks: Sequence[tuple[float, str]] = (),
    y_range: Range | None = None,
    table: str = "layers",
) -> Chart:
    """One bar per mark, from a base; whiskers where a mark has an interval. Positions are 0, 1, 2 and so on."""
    x = Scale(-0.5, len(marks) - 0.5, LEFT, RIGHT)
    extent = [base, *(edge for mark in marks for edge in (mark.y, *(mark.interval or ())))]
    y = Scale(*(y_range or padded(extent)), BOTTOM, TOP)
    width = round(0.7 * (RIGHT - LEFT) / len(marks), 2)
    bars = [
        Bar(
            x=round(x(mark.x) - width / 2, 2),
            y=min(y(mark.y), y(base)),
            width=width,
            height=round(abs(y(mark.y) - y(base)), 2),
            whisker=(y(mark.interval[0]), y(mark.interval[1])) if mark.interval else None,
            exact=mark.exact,
            text=mark.text,
        )
        for mark in marks
    ]
    description = f"{title}, {len(marks)} bars. The table of {table} has the numbers."
    level = Line("", "", "", y(base), ())
    named = [Tick(x(at), text) for at, text in x_ticks]
    return Chart(key, title, description, x_label, named, _ticks(y, unit), None, (level,), bars)


def _extent(series: Sequence[Series]) -> list[float]:
    edges = [edge for one in series for mark in one.marks for edge in (mark.y, *(mark.interval or ()))]
    return edges + [one.level for one in series if one.level is not None]


def _ticks(scale: Scale, unit: str = "", whole: bool = False) -> list[Tick]:
    values = ticks(scale.low, scale.high, whole=whole)
    return [Tick(scale(value), text) for value, text in zip(values, tick_texts(values, unit), strict=True)]


def _line(series: Series, x: Scale, y: Scale) -> Line:
    """The line and its band go through the values that were measured on all images."""
    full = [mark for mark in series.marks if not mark.hollow]
    visible = [mark for mark in series.marks if y.holds(mark.y)]
    stretches = unbroken(full, attrgetter("x"), series.gaps)
    return Line(
        name=series.name,
        path="".join(_path([(x(mark.x), y(mark.y)) for mark in marks]) for marks in stretches),
        band="".join(_band(marks, x, y) for marks in stretches if any(mark.interval for mark in marks)),
        level=y(series.level) if series.level is not None and y.holds(series.level) else None,
        dots=[
            Dot(x(mark.x), y(mark.y), (y(mark.interval[0]), y(mark.interval[1])) if mark.interval else None, mark)
            for mark in visible
        ],
    )


def unbroken(values: Sequence[T], place: Callable[[T], float], gaps: Sequence[float]) -> list[list[T]]:
    """The values in stretches without a gap between; both are in ascending order."""
    return [list(stretch) for _, stretch in groupby(values, lambda value: bisect(gaps, place(value)))]


def _band(marks: Sequence[Mark], x: Scale, y: Scale) -> str:
    # The original is compared with itself: there the band has no width.
    edges = [(mark.x, *(mark.interval or (mark.y, mark.y))) for mark in marks]
    around = [(at, high) for at, _, high in edges] + [(at, low) for at, low, _ in reversed(edges)]
    return _path([(x(at), y(edge)) for at, edge in around]) + "Z"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points) if points else ""
