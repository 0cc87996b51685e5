"""The heat maps of a sweep of two axes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.metrics import metrics
from surgeon.report import wording
from surgeon.report.chart import Cell, HeatMap
from surgeon.report.curves import panels, spots
from surgeon.report.frame import heading

if TYPE_CHECKING:
    from surgeon.results import Sweep


def values_of(sweep: Sweep) -> tuple[list[float], list[float]]:
    """The values of both axes, in ascending order."""
    seconds = {point.second for point in sweep.points if point.second is not None}
    return sorted({point.value for point in sweep.points}), sorted(seconds)


def heat_maps(sweep: Sweep) -> list[HeatMap]:
    """One for each metric that a sweep of one axis has a curve of."""
    return [heat_map(sweep, name) for names in panels(sweep) for name in names]


def heat_map(sweep: Sweep, metric: str) -> HeatMap:
    """A metric at every pair of values: the first axis from left to right, the second from top to bottom."""
    assert sweep.second_axis is not None
    firsts, seconds = values_of(sweep)
    cells = []
    for spot in spots(sweep, metric):
        point = spot.point
        assert point.second is not None
        about = "about " if point.dropped else ""
        figure = wording.figure(metric, spot.height)
        cells.append(
            Cell(
                column=firsts.index(point.value),
                row=seconds.index(point.second),
                value=spot.height,
                exact=spot.height,
                written=f"{'~' if point.dropped else ''}{figure}",
                text=f"{sweep.axis} {point.value:g}, {sweep.second_axis} {point.second:g}: "
                f"{wording.label(metric)} {about}{figure}",
                hollow=point.dropped is not None,
                chosen=sweep.is_chosen(point),
                original=sweep.is_original(point),
            )
        )
    apart = any(cell.original and not cell.chosen for cell in cells)
    marks = f"★ is the chosen pair{', ○ the original network' if apart else ''}"
    return HeatMap(
        key=f"map-{metric}",
        title=f"{heading(wording.label(metric))} {wording.arrow(metric)}",
        x_label=sweep.axis,
        y_label=sweep.second_axis,
        columns=[f"{value:g}" for value in firsts],
        rows=[f"{value:g}" for value in seconds],
        cells=cells,
        higher_is_better=metrics[metric].higher_is_better,
        marks=f"The better, the stronger the colour; {marks}.",
    )
