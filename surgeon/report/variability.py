"""How much the runs of a study vary: a heat map, lines of tables, and the figures that were published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from surgeon.core.presentation import MISSING, NOT_FINITE
from surgeon.metrics.variability import MEASURES, Measure
from surgeon.report.chart import Cell, HeatMap

if TYPE_CHECKING:
    from surgeon.results import Bounds, Study, StudyVariability

PICTURE, TABLE = "variability.png", "variability.csv"
BEYOND_CHANCE = ("less", "more")
SMALLEST, LARGEST = 0.005, 99.5
"""Ratios beyond them are written as `<0.01` and `>99`."""


def measures_of(result: Study) -> list[Measure]:
    """Those that there are figures of."""
    known = {row.measure for row in result.variability}
    return [measure for name, measure in MEASURES.items() if name in known]


def cell_names(result: Study) -> dict[str, str]:
    """Of every variant in an evaluation, by `variant/evaluation`."""
    several = len({row.evaluation for row in result.variability}) > 1
    return {key(row): f"{row.variant}, {row.evaluation}" if several else row.variant for row in result.variability}


def key(row: StudyVariability) -> str:
    """`variant/evaluation`."""
    return f"{row.variant}/{row.evaluation}"


def column_name(measure: Measure) -> str:
    """What stands above values, with their unit."""
    return (
        f"{measure.shown.heading} ({measure.shown.suffix.strip()})" if measure.shown.suffix else measure.shown.heading
    )


def amount_name(measure: Measure) -> str:
    """What ratios are of."""
    return measure.amount_name or measure.shown.heading


def number(measure: Measure, value: float | None) -> str:
    """A value or an error without its unit."""
    return measure.shown.figure(value).removesuffix(measure.shown.suffix)


def value_text(measure: Measure, row: StudyVariability) -> str:
    """`0.62 ±0.13`: with its standard error."""
    value, error = number(measure, row.value), number(measure, row.error)
    return value if MISSING in (value, error) or NOT_FINITE in (value, error) else f"{value} ±{error}"


def bounds_text(measure: Measure, bounds: Bounds | None) -> str:
    """`0.41 to 1.10`, in the unit of the measure."""
    return MISSING if bounds is None else f"{number(measure, bounds.low)} to {number(measure, bounds.high)}"


def ratio_text(value: float | None) -> str:
    """`0.97`, with as many digits as make sense."""
    if value is None:
        return MISSING
    if value > LARGEST:
        return ">99"
    return f"{value:.2f}" if value >= SMALLEST or value == 0 else "<0.01"


def ratio_bounds_text(bounds: Bounds | None) -> str:
    """`0.71 to 1.33`."""
    return MISSING if bounds is None else f"{ratio_text(bounds.low)} to {ratio_text(bounds.high)}"


def heat_map(result: Study) -> HeatMap | None:
    """Every variant by every measure, in comparison with the reference; None if nothing is compared."""
    names, measures = cell_names(result), measures_of(result)
    rows = list(names)
    cells = []
    for row in result.variability:
        is_reference = key(row) == result.variability_reference
        ratio = 1.0 if is_reference else row.ratio
        if ratio is None or not ratio < float("inf"):
            continue
        measure = MEASURES[row.measure]
        interval = f" (95%: {ratio_bounds_text(row.ratio_over_runs)})" if row.ratio_over_runs else ""
        verdict = f", {row.verdict}" if row.verdict else ", the reference"
        cells.append(
            Cell(
                column=measures.index(measure),
                row=rows.index(key(row)),
                value=ratio,
                exact=ratio,
                written=ratio_text(ratio) + ("*" if row.verdict in BEYOND_CHANCE else ""),
                text=f"{names[key(row)]}: {amount_name(measure)} {ratio_text(ratio)} times{interval}{verdict}",
                original=is_reference,
            )
        )
    if all(cell.original for cell in cells):
        return None
    return HeatMap(
        key="variability",
        title=f"Variability in comparison with {names.get(result.variability_reference, result.variability_reference)}",
        x_label="",
        y_label="",
        columns=[amount_name(measure) for measure in measures],
        rows=list(names.values()),
        cells=cells,
        higher_is_better=True,
        table="variability",
        marks="How many times as much the runs vary as the reference (○): the more, the stronger the colour. "
        f"* beyond chance, corrected for {result.variability_comparisons} comparisons.",
        empty_because="not measured there",
        wide=True,
    )


def lines(result: Study) -> Iterator[list[Any]]:
    """For other programs: one line for each measure of each variant in each evaluation."""
    limits = ("over_runs", "ratio_over_runs", "family_ratio")
    edges = [f"{name}_{edge}" for name in limits for edge in ("low", "high")]
    yield ["variant", "evaluation", "measure", "runs", "images", "value", "error", "ratio", *edges, "verdict"]
    for row in result.variability:
        bounds = [getattr(row, name) for name in limits]
        ends = [end for one in bounds for end in ((None, None) if one is None else (one.low, one.high))]
        own = [row.variant, row.evaluation, row.measure, row.runs, row.images, row.value, row.error, row.ratio]
        yield [*own, *ends, row.verdict]


def beside_published(result: Study) -> list[tuple[str, str, str]]:
    """What was published for CIFAR-10 (Summers and Dinneen, ICML 2021), and the same here; nothing without a source."""
    single = [row for row in result.variability if not row.averages]
    sources = [row for row in single if row.is_source]
    if not sources:
        return []
    found = [
        ("SD of accuracy of single networks, points", "0.14 to 0.26", _range(single, "accuracy-sd")),
        ("Disagreement of single networks, %", "5 to 6", _range(single, "disagreement")),
        ("One source alone, times all: SD of accuracy", "about 1", _ratios(sources, "accuracy-sd")),
        ("One source alone, times all: disagreement", "about 1", _ratios(sources, "disagreement")),
    ]
    averaged = [row for row in result.variability if row.averages and not row.is_source]
    for row in averaged:
        if row.measure in ("accuracy-sd", "disagreement") and row.ratio is not None:
            measure = MEASURES[row.measure]
            name = cell_names(result)[key(row)]
            found.append((f"{name}: {measure.shown.label}", "48 to 61% less", _reduction(row)))
    return found


def _range(rows: Sequence[StudyVariability], measure: str) -> str:
    values = [row.value for row in rows if row.measure == measure]
    return _from_to(*(number(MEASURES[measure], edge) for edge in (min(values), max(values))))


def _ratios(rows: Sequence[StudyVariability], measure: str) -> str:
    values = [row.ratio for row in rows if row.measure == measure and row.ratio is not None]
    return _from_to(ratio_text(min(values)), ratio_text(max(values))) if values else MISSING


def _from_to(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _reduction(row: StudyVariability) -> str:
    """`12% less (95%: 30% less to 10% more)`."""
    assert row.ratio is not None
    bounds = row.ratio_over_runs
    interval = f" (95%: {_change(bounds.low)} to {_change(bounds.high)})" if bounds else ""
    return f"{_change(row.ratio)}{interval}"


def _change(ratio: float) -> str:
    if ratio > 2:
        return f"{ratio_text(ratio)} times"
    return f"{100 * abs(ratio - 1):.0f}% {'less' if ratio < 1 else 'more'}"
