"""A chart is described once: its SVG and its PNG show the same values on the same scales."""

import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from surgeon.report import png
from surgeon.report.chart import AnyChart, Chart, Mark, Matrix, RowChart, RowMark, Series
from surgeon.report.svg import drawings, row_drawing

LINES = Chart(
    "lines",
    "Accuracy",
    "alpha",
    [
        Series(
            "as it is",
            [
                Mark(0.0, 90.0, 0.9, "first"),
                Mark(0.1, 92.0, 0.92, "second", interval=(91.0, 93.5), chosen=True),
                Mark(0.2, 91.0, 0.91, "few images", hollow=True),
            ],
            level=90.0,
        )
    ],
    unit="%",
    chosen=0.1,
)
BARS = Chart("bars", "By class", "classes", bars=[Mark(n, 10.0 * n, 0.1 * n, str(n)) for n in range(4)], base=5.0)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The panels that matplotlib was given."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))

    def draw(*charts: AnyChart) -> list[Axes]:
        png.save_picture("title", charts, tmp_path / "chart.png")
        return figures[-1].axes

    return draw


@pytest.mark.parametrize("chart", [LINES, BARS])
def test_the_scales_are_the_same(chart: Chart, drawn: Any) -> None:
    [axes] = drawn(chart)
    [drawing] = drawings([chart])
    assert [text.get_text() for text in axes.get_yticklabels()] == [tick.text for tick in drawing.y_ticks]
    assert [text.get_text() for text in axes.get_xticklabels()] == [tick.text for tick in drawing.x_ticks]
    assert axes.get_ylim() == pytest.approx(chart.vertical)
    assert axes.get_xlim() == pytest.approx(chart.horizontal)


def test_both_show_every_mark(drawn: Any) -> None:
    [axes] = drawn(LINES)
    with_dots = [line for line in axes.lines if line.get_marker() == "o"]
    in_picture = {place for line in with_dots for place in zip(*line.get_data(), strict=True)}
    assert in_picture == {(mark.x, mark.y) for mark in LINES.marks}
    [drawing] = drawings([LINES])
    assert [dot.mark for line in drawing.lines for dot in line.dots] == LINES.marks
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"as it is", "original network", "chosen alpha = 0.1"} <= set(legend)


def test_bars_start_at_their_base(drawn: Any) -> None:
    [axes] = drawn(BARS)
    assert [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in axes.patches] == [
        (5.0, 10.0 * n) for n in range(4)
    ]
    [drawing] = drawings([BARS])
    level = drawing.lines[-1].level
    assert all(level in (bar.y, pytest.approx(bar.y + bar.height)) for bar in drawing.bars)


def test_a_chart_without_values_is_drawn_only_where_others_stand_beside_it(drawn: Any) -> None:
    empty = Chart("nothing", "Loss", "epoch", [])
    assert drawings([empty, LINES])[0].chart is LINES
    assert len(drawn(empty, LINES)) == 2


def test_what_cannot_be_seen_is_told_by_both(drawn: Any) -> None:
    chart = Chart("far", "Loss", "epoch", LINES.series, y_range=(89.0, 91.5), left_out=[0.3])
    note = "Off the scale: epoch 0.1. Left out because not finite: epoch 0.3."
    assert chart.note == note
    [axes] = drawn(chart)
    legend = " ".join(re.sub(r"\s+", " ", text.get_text()) for text in axes.get_legend().get_texts())
    assert note in legend


def test_rows_and_a_matrix(drawn: Any) -> None:
    rows = [RowMark("a", 90.0, 0.9, "a", (89.0, 91.0)), RowMark("both", 92.0, 0.92, "both", strong=True)]
    chart = RowChart("accuracy", "Accuracy", rows, unit="%")
    first, second = drawn(chart, Matrix("Disagreement", ["a", "b"], [[0.0, 3.0], [3.0, 0.0]]))
    assert [text.get_text() for text in first.get_xticklabels()] == [tick.text for tick in row_drawing(chart).ticks]
    assert [text.get_text() for text in first.get_yticklabels()] == [place.name for place in row_drawing(chart).places]
    assert [text.get_text() for text in second.texts] == ["–", "3.0", "3.0", "–"]
