"""Charts in the coordinates of an SVG: positions and paths. Templates only write down what is here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from surgeon.report.chart import Cell, Chart, GroupedBars, HeatMap, Mark, Range, RowChart, RowMark, Series, clipped

WIDTH, HEIGHT = 440, 290
LEFT, RIGHT, TOP, BOTTOM = 58, 426, 16, 244
ROW = 24
"""Height of a row that has a name."""
LINE = 19
"""Least height of a tile with a number."""
DOT = 4.2
LETTER = 7.8
"""Width of a letter in the widest of the usual fonts, on average."""


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
    mark: Mark


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

    def interval(self, interval: Range | None) -> Range | None:
        return (self(interval[0]), self(interval[1])) if interval else None


@dataclass(frozen=True)
class Drawing:
    """A chart, ready to be written as SVG."""

    chart: Chart
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    chosen: Tick | None
    lines: Sequence[Line]
    bars: Sequence[Bar]
    ends: Sequence[float]
    diagonal: str

    @property
    def has_hollow(self) -> bool:
        return any(dot.mark.hollow for line in self.lines for dot in line.dots)

    @property
    def has_intervals(self) -> bool:
        return any(dot.whisker for line in self.lines for dot in line.dots)

    @property
    def has_level(self) -> bool:
        return any(line.level is not None for line in self.lines)


def drawings(charts: Sequence[Chart]) -> list[Drawing]:
    """The charts that have something to draw."""
    return [_drawing(chart) for chart in charts if chart.marks]


def _drawing(chart: Chart) -> Drawing:
    x, y = Scale(*chart.horizontal, LEFT, RIGHT), Scale(*chart.vertical, BOTTOM, TOP)
    chosen = chart.chosen
    lines = [_line(one, x, y) for one in chart.series]
    return Drawing(
        chart=chart,
        x_ticks=[Tick(x(at), text) for at, text in chart.horizontal_ticks()],
        y_ticks=[Tick(y(at), text) for at, text in chart.vertical_ticks()],
        chosen=Tick(x(chosen), f"{chosen:g}") if chosen is not None and x.holds(chosen) else None,
        lines=[*lines, Line("", "", "", y(chart.base), ())] if chart.bars else lines,
        bars=[_bar(mark, chart, x, y) for mark in chart.bars],
        ends=[x(end) for end in chart.ends if x.holds(end)],
        diagonal=_diagonal(x, y) if chart.diagonal_name else "",
    )


def _line(series: Series, x: Scale, y: Scale) -> Line:
    """The line and its band go through the values that were measured on all images."""
    visible = [mark for mark in series.marks if y.holds(mark.y)]
    return Line(
        name=series.name,
        path="".join(_path([(x(mark.x), y(mark.y)) for mark in marks]) for marks in series.stretches),
        band="".join(_band(marks, x, y) for marks in series.stretches if any(mark.interval for mark in marks)),
        level=y(series.level) if series.level is not None and y.holds(series.level) else None,
        dots=[Dot(x(mark.x), y(mark.y), y.interval(mark.interval), mark) for mark in visible],
    )


def _bar(mark: Mark, chart: Chart, x: Scale, y: Scale) -> Bar:
    width = round(0.7 * (RIGHT - LEFT) / len(chart.bars), 2)
    return Bar(
        x=round(x(mark.x) - width / 2, 2),
        y=min(y(mark.y), y(chart.base)),
        width=width,
        height=round(abs(y(mark.y) - y(chart.base)), 2),
        whisker=y.interval(mark.interval),
        mark=mark,
    )


def _diagonal(x: Scale, y: Scale) -> str:
    ends = max(x.low, y.low), min(x.high, y.high)
    return _path([(x(end), y(end)) for end in ends])


def _band(marks: Sequence[Mark], x: Scale, y: Scale) -> str:
    # The original is compared with itself: there the band has no width.
    edges = [(mark.x, *(mark.interval or (mark.y, mark.y))) for mark in marks]
    around = [(at, high) for at, _, high in edges] + [(at, low) for at, low, _ in reversed(edges)]
    return _path([(x(at), y(edge)) for at, edge in around]) + "Z"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points) if points else ""


def _room_for(names: Sequence[str]) -> int:
    """What the names of rows need at the left."""
    return 14 + round(LETTER * max(map(len, names)))


class PlacedRow(NamedTuple):
    """A row of a chart, in the coordinates of the picture."""

    name: str
    y: int
    dot: float
    whisker: Range | None
    row: RowMark
    dots: Sequence[Tick] = ()


class RowDrawing(NamedTuple):
    """A chart of rows, ready to be written as SVG; as high as it has rows."""

    left: int
    right: int
    bottom: int
    height: int
    ticks: Sequence[Tick]
    places: Sequence[PlacedRow]


def row_drawing(chart: RowChart) -> RowDrawing:
    """The rows below one another, with room for their names."""
    names = [clipped(row.name, 24) for row in chart.rows]
    left, step = _room_for(names), ROW
    scale = Scale(*chart.horizontal, left, RIGHT)
    bottom = 12 + step * len(chart.rows)
    places = [
        PlacedRow(name, 22 + step * number, scale(row.value), scale.interval(row.interval), row, _dots(row, scale))
        for number, (name, row) in enumerate(zip(names, chart.rows, strict=True))
    ]
    ticks = [Tick(scale(at), text) for at, text in chart.horizontal_ticks()]
    return RowDrawing(left, RIGHT, bottom, bottom + 26, ticks, places)


def _dots(row: RowMark, scale: Scale) -> list[Tick]:
    return [Tick(scale(value), text) for value, text in row.dots if scale.holds(value)]


class Tile(NamedTuple):
    """A cell of a heat map, in the coordinates of the picture."""

    x: float
    y: float
    strength: float
    cell: Cell


class HeatDrawing(NamedTuple):
    """A heat map, ready to be written as SVG."""

    chart: HeatMap
    width: float
    height: float
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    tiles: Sequence[Tile]
    left: int = LEFT
    """Where the tiles begin: names of rows need room."""
    right: int = RIGHT
    bottom: int = BOTTOM

    @property
    def size(self) -> tuple[int, int]:
        """Of the whole picture."""
        return self.right + WIDTH - RIGHT, self.bottom + HEIGHT - BOTTOM

    @property
    def room(self) -> bool:
        """Whether numbers fit into the tiles."""
        longest = max(len(tile.cell.written) for tile in self.tiles)
        return self.width >= min(48, LETTER * longest + 6) and self.height >= 15


def heat_drawings(charts: Sequence[HeatMap]) -> list[HeatDrawing]:
    """The heat maps that have something to draw."""
    return [_heat_drawing(chart) for chart in charts if chart.cells]


def _heat_drawing(chart: HeatMap) -> HeatDrawing:
    left = max(LEFT, _room_for(chart.rows))
    right = 2 * RIGHT if chart.wide else RIGHT
    bottom = TOP + ROW * len(chart.rows) if chart.wide else max(BOTTOM, TOP + LINE * len(chart.rows))
    width, height = (right - left) / len(chart.columns), (bottom - TOP) / len(chart.rows)
    tiles = [
        Tile(round(left + width * c.column, 2), round(TOP + height * c.row, 2), round(chart.strength(c), 3), c)
        for c in chart.cells
    ]
    every = max(1, -(-len(chart.columns) * 40 // (right - left))), max(1, -(-len(chart.rows) * 14 // (bottom - TOP)))
    x_ticks = [Tick(round(left + width * (i + 0.5), 2), t) for i, t in enumerate(chart.columns) if i % every[0] == 0]
    y_ticks = [Tick(round(TOP + height * (i + 0.5), 2), t) for i, t in enumerate(chart.rows) if i % every[1] == 0]
    return HeatDrawing(chart, round(width, 2), round(height, 2), x_ticks, y_ticks, tiles, left, right, bottom)


class GroupDrawing(NamedTuple):
    """Grouped bars, which lie, ready to be written as SVG; as high as there are bars."""

    chart: GroupedBars
    left: int
    bottom: int
    height: int
    ticks: Sequence[Tick]
    names: Sequence[Tick]
    bars: Sequence[tuple[int, Bar]]
    """The number of the series that each belongs to, from 1."""


def group_drawings(charts: Sequence[GroupedBars]) -> list[GroupDrawing]:
    """The bars below one another, with room for the names of the groups."""
    return [_group_drawing(chart) for chart in charts if chart.groups]


def _group_drawing(chart: GroupedBars) -> GroupDrawing:
    names = [clipped(name, 24) for name in chart.groups]
    left, thick = _room_for(names), 12 if len(chart.series) == 1 else 8
    step = thick * len(chart.series) + 8
    scale = Scale(0.0, chart.most * 1.02, left, RIGHT)
    bottom = 12 + step * len(names)
    bars = [
        (
            number,
            Bar(
                left,
                12 + step * group + thick * (number - 1),
                round(scale(mark.y) - left, 2),
                thick - 1,
                scale.interval(mark.interval),
                mark,
            ),
        )
        for number, (_, marks) in enumerate(chart.series, 1)
        for group, mark in enumerate(marks)
    ]
    rows = [Tick(12 + step * group + (step - 8) / 2, name) for group, name in enumerate(names)]
    ticks = [Tick(scale(at), text) for at, text in chart.horizontal_ticks()]
    return GroupDrawing(chart, left, bottom, bottom + 26, ticks, rows, bars)
