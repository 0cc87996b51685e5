"""What a chart shows, in its own units: described once, drawn by `svg` on pages and by `png` as a picture."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, TypeVar

Range = tuple[float, float]
T = TypeVar("T")


class Mark(NamedTuple):
    """One value to draw; `exact` is the number it stands for, `text` what to say about it."""

    x: float
    y: float
    exact: float
    text: str
    interval: Range | None = None
    hollow: bool = False
    """Estimated from fewer images than the others: not on the line."""
    chosen: bool = False


class Series(NamedTuple):
    """Marks of one measure, and the level to compare them with; the line goes across no gap."""

    name: str
    marks: Sequence[Mark]
    level: float | None = None
    gaps: Sequence[float] = ()

    @property
    def stretches(self) -> list[list[Mark]]:
        """The marks that a line goes through, in stretches without a gap between."""
        return unbroken([mark for mark in self.marks if not mark.hollow], lambda mark: mark.x, self.gaps)


@dataclass(frozen=True)
class Chart:
    """Lines over a quantity, or bars from a base, in a frame."""

    key: str
    title: str
    x_label: str
    series: Sequence[Series] = ()
    bars: Sequence[Mark] = ()
    """One bar per mark, at the positions 0, 1, 2 and so on."""
    base: float = 0.0
    """Where bars start."""
    unit: str = ""
    """Of the numbers at the vertical axis."""
    chosen: float | None = None
    x_range: Range | None = None
    y_range: Range | None = None
    x_ticks: Sequence[tuple[float, str]] = ()
    """Of bars, which have no scale of their own."""
    whole: bool = False
    """Whether the horizontal axis counts something."""
    left_out: Sequence[float] = ()
    """Where values are not finite."""
    table: str = "all values"
    """Which table of the page has the numbers."""
    ends: Sequence[float] = ()
    """Where something that took several values of x came to its end."""
    ends_name: str = ""
    intervals_name: str = "95% interval of the gain"
    diagonal_name: str = ""
    """What it means that both quantities are equal, if anything."""
    remark: str = ""

    @property
    def marks(self) -> list[Mark]:
        return [*self.bars, *(mark for one in self.series for mark in one.marks)]

    @property
    def horizontal(self) -> Range:
        """The range of the horizontal axis."""
        if self.bars:
            return -0.5, len(self.bars) - 0.5
        return self.x_range or padded([mark.x for mark in self.marks] or [0.0, 1.0], 0.03)

    @property
    def vertical(self) -> Range:
        """The range of the vertical axis."""
        edges = [edge for mark in self.marks for edge in (mark.y, *(mark.interval or ()))]
        levels = [one.level for one in self.series if one.level is not None]
        return self.y_range or padded([*edges, *levels, *([self.base] if self.bars else [])] or [0.0, 1.0])

    def shows(self, mark: Mark) -> bool:
        """Whether a mark is inside the frame."""
        low, high = self.vertical
        return low <= mark.y <= high

    def horizontal_ticks(self) -> list[tuple[float, str]]:
        return list(self.x_ticks) if self.bars else ticks(*self.horizontal, whole=self.whole)

    def vertical_ticks(self) -> list[tuple[float, str]]:
        return ticks(*self.vertical, unit=self.unit)

    @property
    def description(self) -> str:
        """For those who cannot see it."""
        numbers = f"The table of {self.table} has the numbers."
        if self.bars:
            return f"{self.title}, {len(self.bars)} bars. {numbers}"
        xs = sorted({mark.x for mark in self.marks})
        names = " and ".join(one.name for one in self.series)
        chosen = "" if self.chosen is None else f"; {self.chosen:g} was chosen"
        return f"{names} at {len(xs)} values of {self.x_label}, {xs[0]:g} to {xs[-1]:g}{chosen}. {numbers}"

    @property
    def note(self) -> str:
        """Which values cannot be seen, and why."""
        outside = [] if self.bars else sorted({mark.x for mark in self.marks if not self.shows(mark)})
        lists = (("Off the scale", outside), ("Left out because not finite", self.left_out))
        listed = [f"{why}: {self.x_label} {', '.join(f'{x:g}' for x in values)}." for why, values in lists if values]
        return " ".join(filter(None, (*listed, self.remark)))


class RowMark(NamedTuple):
    """One value of a chart whose values lie below one another; a strong one is made of the others."""

    name: str
    value: float
    exact: float
    text: str
    interval: Range | None = None
    strong: bool = False
    dots: Sequence[tuple[float, str]] = ()
    """Values that it is the mean of, and what to say about each."""


@dataclass(frozen=True)
class RowChart:
    """Values below one another, with their intervals."""

    key: str
    title: str
    rows: Sequence[RowMark]
    unit: str = ""
    named: bool = True
    """Whether a picture writes the names of the rows; not beside another chart of the same rows."""
    note: str = ""

    @property
    def description(self) -> str:
        """For those who cannot see it."""
        intervals = ", with their intervals" if any(row.interval for row in self.rows) else ""
        dots = ", and a dot for every seed" if any(row.dots for row in self.rows) else ""
        return f"{self.title}, {len(self.rows)} rows{intervals}{dots}. The table has the numbers."

    @property
    def horizontal(self) -> Range:
        given = ((row.value, *(row.interval or ()), *(value for value, _ in row.dots)) for row in self.rows)
        edges = [edge for row in given for edge in row if math.isfinite(edge)]
        return padded(edges or [0.0, 1.0])

    def horizontal_ticks(self) -> list[tuple[float, str]]:
        return ticks(*self.horizontal, wanted=3, unit=self.unit)


@dataclass(frozen=True)
class Matrix:
    """A number for every pair; the diagonal has none."""

    title: str
    names: Sequence[str]
    values: Sequence[Sequence[float]]


class Cell(NamedTuple):
    """One value of a heat map, by its column and row; `exact` is the number it stands for, `text` what to say of it."""

    column: int
    row: int
    value: float
    exact: float
    written: str
    text: str
    hollow: bool = False
    """Estimated from fewer images than the others."""
    chosen: bool = False
    original: bool = False


@dataclass(frozen=True)
class HeatMap:
    """A number for every pair of values of two quantities; the better, the stronger the colour."""

    key: str
    title: str
    x_label: str
    y_label: str
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Sequence[Cell]
    higher_is_better: bool
    marks: str
    """What colours and marks mean."""
    table: str = "all values"
    """Which table of the page has the numbers."""
    empty_because: str = "not finite or dropped early"
    """Why a pair may have no number."""
    wide: bool = False
    """Whether it takes the whole page, since rows and columns have names."""

    def strength(self, cell: Cell) -> float:
        """Of the colour: from 0 for the worst to 1 for the best."""
        values = [each.value for each in self.cells]
        worst, best = (min(values), max(values)) if self.higher_is_better else (max(values), min(values))
        return (cell.value - worst) / (best - worst) if best != worst else 0.5

    @property
    def description(self) -> str:
        """For those who cannot see it."""
        chosen = "".join(f" Chosen: {cell.text}." for cell in self.cells if cell.chosen)
        return (
            f"{self.title} at {len(self.columns)} values of {self.x_label} and {len(self.rows)} of {self.y_label}."
            f"{chosen} The table of {self.table} has the numbers."
        )

    @property
    def note(self) -> str:
        """What the marks mean, and which pairs cannot be seen."""
        missing = len(self.columns) * len(self.rows) - len(self.cells)
        notes = [self.marks]
        if any(cell.hollow for cell in self.cells):
            notes.append("Numbers with ~ are estimated from fewer images.")
        if missing:
            notes.append(f"Empty: {missing}, because {self.empty_because}.")
        return " ".join(notes)


@dataclass(frozen=True)
class GroupedBars:
    """Bars from zero in groups, one bar of each group for every series."""

    key: str
    title: str
    groups: Sequence[str]
    series: Sequence[tuple[str, Sequence[Mark]]]
    """The name of each, and its bars in the order of the groups."""
    unit: str = ""
    note: str = ""
    table: str = "all values"

    @property
    def most(self) -> float:
        """Where the scale ends."""
        edges = [max(mark.y, *(mark.interval or (0.0,))) for _, marks in self.series for mark in marks]
        return max(edges, default=1.0) or 1.0

    def horizontal_ticks(self) -> list[tuple[float, str]]:
        return ticks(0.0, self.most, unit=self.unit)

    @property
    def description(self) -> str:
        """For those who cannot see it."""
        names = " and ".join(name for name, _ in self.series)
        return f"{self.title}: {names}, {len(self.groups)} groups of bars. The table of {self.table} has the numbers."


@dataclass(frozen=True)
class FigureTable:
    """Numbers to be read rather than seen: a line for each, with its name, its value and its interval."""

    title: str
    lines: Sequence[tuple[str, str, str]]


AnyChart = Chart | RowChart | Matrix | HeatMap | GroupedBars | FigureTable


def clipped(name: str, most: int = 28) -> str:
    """A name that fits beside a row: its end tells it apart."""
    return name if len(name) <= most else f"…{name[-most + 1 :]}"


def ticks(low: float, high: float, *, wanted: int = 5, whole: bool = False, unit: str = "") -> list[tuple[float, str]]:
    """About as many round numbers as wanted between low and high, and how they are written."""
    values = round_numbers(low, high, wanted, whole)
    return list(zip(values, tick_texts(values, unit), strict=True))


def round_numbers(low: float, high: float, wanted: int = 5, whole: bool = False) -> list[float]:
    """About as many round numbers as wanted, between low and high."""
    rough = max((high - low) / wanted, 1.0 if whole else 0.0)
    magnitude = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = min((magnitude * factor for factor in factors), key=lambda size: abs(math.log(size / rough)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def tick_texts(values: Sequence[float], unit: str = "") -> list[str]:
    """The numbers with just as many digits as tell them apart."""
    if not values:
        return []
    spacing = values[1] - values[0] if len(values) > 1 else abs(values[0]) or 1.0
    digits = next((d for d in range(9) if all(abs(round(v, d) - v) < spacing * 1e-3 for v in values)), 9)
    return [f"{value:z.{digits}f}{unit}" for value in values]


def padded(values: Sequence[float], share: float = 0.06) -> Range:
    """The range of the values with some air; a single value gets a range around it."""
    low, high = min(values), max(values)
    air = share * (high - low) or max(abs(high) * 0.05, 1e-6)
    return low - air, high + air


def unbroken(values: Sequence[T], place: Callable[[T], float], gaps: Sequence[float]) -> list[list[T]]:
    """The values in stretches without a gap between; both are in ascending order."""
    return [list(stretch) for _, stretch in groupby(values, lambda value: bisect(gaps, place(value)))]
