"""Rows of small pictures with what they are beneath, drawn as one PNG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from surgeon.report.png import COLOURS
from surgeon.report.wording import class_name

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.axes import Axes

DPI = 150
GAP = 14  # between pictures; all lengths are in pixels
MARGIN = 24
LINE = 19
BAR = 9
TITLE = 46
AXIS, TICK, CLOSEST = 56, 5, 15  # of pictures with axes; and how close two ticks may be
SIDE, SIDE_AMONG_MANY, MANY = 192, 128, 8
WIDEST = 1700  # of the pictures side by side: more of them go below
NAME_SIZE, TITLE_SIZE, CAPTION_SIZE, TICK_SIZE = 8.5, 11.0, 6.8, 5.8  # in points


class LabelShare(NamedTuple):
    """A class and its weight in a label; `colour` numbers the image that it comes from."""

    name: str
    weight: float
    colour: int = 0


@dataclass(frozen=True, eq=False)
class Tile:
    """A picture (H, W, 3) with its label beneath. A label of one class is named, one of several is drawn as a bar."""

    pixels: npt.NDArray[np.uint8]
    label: tuple[LabelShare, ...] = ()


@dataclass(frozen=True, eq=False)
class Row:
    """Pictures side by side, with a name and a remark at the left; None leaves a place empty."""

    name: str
    remark: str
    tiles: tuple[Tile | None, ...]

    @property
    def lines(self) -> int:
        """The most classes that a label beneath has."""
        return max((len(tile.label) for tile in self.tiles if tile), default=0)


class Scale(NamedTuple):
    """An axis: its unit, and the ticks, each at a share of the way along it."""

    unit: str
    ticks: tuple[tuple[float, str], ...]


class Scales(NamedTuple):
    """The axes of all pictures: to the right and upwards."""

    across: Scale
    upwards: Scale


@dataclass(frozen=True, eq=False)
class Gallery:
    title: str
    rows: tuple[Row, ...]
    scales: Scales | None = None
    """Drawn beside the first pictures of rows and below the last row."""

    @property
    def side(self) -> int:
        """As which each picture is drawn: small ones are enlarged by a whole factor, so that pixels stay square."""
        target = SIDE if max(len(self.rows), self.columns) <= MANY else SIDE_AMONG_MANY
        size = max(max(tile.pixels.shape[:2]) for row in self.rows for tile in row.tiles if tile)
        return size * max(1, round(target / size)) if size <= 1.25 * target else target

    @property
    def columns(self) -> int:
        return max(len(row.tiles) for row in self.rows)

    @property
    def blocks(self) -> list[list[Row]]:
        """The rows, cut into as many parts one below the other as keep the picture from getting too wide."""
        number = math.ceil(self.columns / max(1, (WIDEST + GAP) // (self.side + GAP)))
        width = math.ceil(self.columns / number)
        starts = range(0, self.columns, width)
        return [[replace(row, tiles=row.tiles[start : start + width]) for row in self.rows] for start in starts]


def draw_gallery(gallery: Gallery, path: Path | BytesIO) -> None:
    """Write the pictures as a PNG."""
    from matplotlib.figure import Figure

    side = gallery.side
    left = MARGIN + GAP + round(max(_width(text, NAME_SIZE) for row in gallery.rows for text in (row.name, row.remark)))
    left += AXIS if gallery.scales else 0
    blocks = gallery.blocks
    width = max(left + len(blocks[0][0].tiles) * (side + GAP) - GAP, MARGIN + round(_width(gallery.title, TITLE_SIZE)))
    heights = [[_height(row, side) for row in block] for block in blocks]
    for of_block in heights if gallery.scales else ():
        of_block[-1] += LINE
    size = round(width + MARGIN), TITLE + sum(map(sum, heights)) + (len(blocks) - 1) * MARGIN + MARGIN - GAP
    figure = Figure(figsize=(size[0] / DPI, size[1] / DPI), dpi=DPI)
    # One pair of axes whose unit is the pixel of the file, with y downwards.
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    top = TITLE
    for block, heights_of_rows in zip(blocks, heights, strict=True):
        for row, height in zip(block, heights_of_rows, strict=True):
            _draw_row(axes, row, left, top, side)
            if gallery.scales:
                _draw_scales(axes, row, gallery.scales, left, top, side, last=row is block[-1])
            top += height
        top += MARGIN
    axes.text(MARGIN, TITLE / 2, gallery.title, fontsize=TITLE_SIZE, fontweight="bold", va="center")
    axes.set(xlim=(0, size[0]), ylim=(size[1], 0), aspect="auto")
    figure.savefig(path, dpi=DPI, format="png")


def _height(row: Row, side: int) -> int:
    bar = BAR + 4 if row.lines > 1 else 0
    return side + bar + row.lines * LINE + GAP


def _below(row: Row) -> int:
    """What stands beneath the pictures of a row, in pixels."""
    return _height(row, 0) - GAP


def _draw_scales(axes: Axes, row: Row, scales: Scales, left: int, top: int, side: int, last: bool) -> None:
    """Upwards beside the first picture; to the right below all pictures of the last row."""
    how: dict[str, Any] = {"fontsize": TICK_SIZE, "color": "0.35"}
    if row.tiles[0] is not None:
        free = float(top)
        for number, (share, text) in enumerate(reversed(scales.upwards.ticks)):
            y = top + side * (1 - share)
            if y < free:
                continue
            free = y + CLOSEST
            axes.plot((left - TICK, left), (y, y), color="0.35", linewidth=0.6)
            unit = "" if number else f" {scales.upwards.unit}"
            axes.text(left - TICK - 2, y, text + unit, ha="right", va="center", **how)
    if last:
        below = top + side + _below(row)
        for column, tile in enumerate(row.tiles):
            x = left + column * (side + GAP)
            for share, text in scales.across.ticks if tile is not None else ():
                axes.plot((x + side * share,) * 2, (below, below + TICK), color="0.35", linewidth=0.6)
                unit = f" {scales.across.unit}" if share == 1 else ""
                where = "left" if share == 0 else "right" if share == 1 else "center"
                axes.text(x + side * share, below + TICK + 2, text + unit, ha=where, va="top", **how)


def _draw_row(axes: Axes, row: Row, left: int, top: int, side: int) -> None:
    middle = top + side / 2
    axes.text(MARGIN, middle, row.name, fontsize=NAME_SIZE, fontweight="bold", va="bottom")
    axes.text(MARGIN, middle + 3, row.remark, fontsize=CAPTION_SIZE, color="0.45", va="top")
    for number, tile in enumerate(row.tiles):
        if tile is not None:
            _draw_tile(axes, tile, left + number * (side + GAP), top, side, row.lines)


def _draw_tile(axes: Axes, tile: Tile, x: int, top: int, side: int, lines: int) -> None:
    axes.imshow(_scaled(tile.pixels, side), extent=(x, x + side, top + side, top), interpolation="none")
    bottom = top + side
    if lines > 1:
        _draw_bar(axes, tile.label, x, bottom + 4, side)
        bottom += BAR + 4
    for line, share in enumerate(tile.label):
        name = class_name(share.name)
        text = f"{share.weight:.0%} {name}" if lines > 1 else name
        where: dict[str, Any] = {"fontsize": CAPTION_SIZE, "va": "center", "color": _colour(share)}
        axes.text(x, bottom + 2 + (line + 0.5) * LINE, cut_to_width(text, side), **where)


def _draw_bar(axes: Axes, label: Sequence[LabelShare], x: float, top: int, side: int) -> None:
    from matplotlib.patches import Rectangle

    for share in label:
        axes.add_patch(Rectangle((x, top), side * share.weight, BAR, color=_colour(share), linewidth=0))
        x += side * share.weight


def _colour(share: LabelShare) -> str:
    return COLOURS[share.colour] if share.colour < len(COLOURS) else "0.5"


def _scaled(pixels: npt.NDArray[np.uint8], side: int) -> npt.NDArray[np.uint8]:
    import numpy as np
    from PIL import Image

    how = Image.Resampling.NEAREST if max(pixels.shape[:2]) <= side else Image.Resampling.LANCZOS
    return np.asarray(Image.fromarray(pixels).resize((side, side), how))


def cut_to_width(text: str, width: float, size: float = CAPTION_SIZE) -> str:
    """The text, cut where it would be wider than this many pixels."""
    if _width(text, size) <= width:
        return text
    kept = text
    while kept and _width(f"{kept}…", size) > width:
        kept = kept[:-1].rstrip()
    return f"{kept}…"


def _width(text: str, size: float) -> float:
    """In pixels, in bold, which is the widest."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    if not text:
        return 0.0
    weight = "normal" if size == CAPTION_SIZE else "bold"
    return float(TextPath((0, 0), text, size=size, prop=FontProperties(weight=weight)).get_extents().width) * DPI / 72
