"""What is rendered from a sweep's record: words, curves, a picture and a page, with the record's own numbers."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from surgeon.report import chart
from surgeon.report.curves import spots, sweep_in_terminal
from surgeon.report.sweep import sweep_page, sweep_picture
from surgeon.report.wording import DROPPED, figure, gain_text, short_gain_text
from surgeon.results import Gain, Learned, Learning, Point, Sweep
from tests.unit.sweep_record import CHOSEN, figures, gain, point, points, settings, sweep


def difference(metric: str, *numbers: float) -> Gain:
    value, low, high = numbers
    return gain(metric, CHOSEN).model_copy(update={"difference": value, "low": low, "high": high})


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("accuracy", 0.9148, "91.48%"),
        ("top5", 1.0, "100.00%"),
        ("top5", None, "–"),
        ("cross-entropy", 0.31234, "0.3123"),
        ("cross-entropy", math.inf, "not finite"),
        ("ece", math.nan, "not finite"),
    ],
)
def test_figures_have_their_metrics_unit(metric: str, value: float | None, text: str) -> None:
    assert figure(metric, value) == text


@pytest.mark.parametrize(
    ("compared", "text"),
    [
        (difference("accuracy", 0.0026, -0.001, 0.0062), "+0.26 points (95%: -0.10 to +0.62), not significant"),
        (difference("cross-entropy", -0.0123, -0.015, -0.0096), "+0.0123 (95%: +0.0096 to +0.0150)"),
        (difference("cross-entropy", -1e-7, -1e-7, -1e-7), "+0.0000 (95%: +0.0000 to +0.0000)"),
        (difference("accuracy", 0.01, -math.inf, math.inf), "+1.00 points (95%: unbounded), not significant"),
        (difference("cross-entropy", math.inf, math.inf, math.inf), "not finite"),
    ],
)
def test_a_gain_comes_with_its_interval(compared: Gain, text: str) -> None:
    assert gain_text(compared) == text


@pytest.mark.parametrize(
    ("compared", "text"),
    [
        (difference("accuracy", 0.0026, -0.001, 0.0062), "+0.26 ±0.36"),
        (difference("cross-entropy", -0.0123, -0.015, -0.0096), "+0.0123 ±0.0027"),
        (difference("accuracy", 0.01, -math.inf, math.inf), "+1.00 ±∞"),
        (difference("cross-entropy", math.inf, math.inf, math.inf), "not finite"),
    ],
)
def test_a_gain_in_few_words(compared: Gain, text: str) -> None:
    assert short_gain_text(compared) == text


def test_wording_does_not_wait_for_torch() -> None:
    code = "import sys, surgeon.report.wording; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def with_values_that_are_not_finite() -> Sweep:
    """Alpha 0.5 gives an infinite cross-entropy and alpha 1 one that is no number."""
    broken = []
    for swept in points("cross-entropy"):
        bad = {0.5: math.inf, 1.0: math.nan}.get(swept.value)
        if bad is not None:
            metrics = figures(swept.value, cross_entropy=bad, scaled_cross_entropy=bad, temperature=None, nan_images=3)
            swept = Point(value=swept.value, metrics=metrics, gain=difference("cross-entropy", bad, bad, bad))
        broken.append(swept)
    return sweep(points=broken)


def all_infinite() -> Sweep:
    nothing = [
        Point(
            value=value,
            metrics=figures(value, cross_entropy=math.inf, scaled_cross_entropy=math.inf),
            gain=difference("cross-entropy", math.nan, math.nan, math.nan) if value else None,
        )
        for value in (0.0, 0.5)
    ]
    original = settings()[0].model_copy(update={"choosing": nothing[0].metrics, "confirming": None})
    return sweep(points=nothing, settings=[original], chosen=0.0, best="original", learned=())


def only_the_original() -> Sweep:
    return sweep(points=[point(0.0, "cross-entropy")], chosen=0.0, settings=settings()[:1], best="original", learned=())


RECORDS = {
    "race": sweep(),
    "by accuracy": sweep(metric="accuracy"),
    "by a metric with a panel of its own": sweep(metric="ece"),
    "not finite": with_values_that_are_not_finite(),
    "nothing finite": all_infinite(),
    "one value": only_the_original(),
    "one value that is not the original": sweep(points=[point(CHOSEN, "cross-entropy")]),
}


@pytest.fixture(params=RECORDS)
def record(request: pytest.FixtureRequest) -> Sweep:
    return RECORDS[request.param]


def test_the_curve_in_the_terminal_writes_large_values_in_full() -> None:
    swept = points("cross-entropy")
    priors = [one.model_copy(update={"value": 16.0 * 4**number}) for number, one in enumerate(swept)]
    *_, below, legend = sweep_in_terminal(sweep(points=priors, chosen=priors[1].value)).splitlines()
    assert "chosen (64)" in legend
    numbers = [float(word) for word in below.split()]
    assert "e" not in below
    assert len(numbers) >= 3
    assert all(priors[0].value <= number <= priors[-1].value for number in numbers)
    again = sweep_in_terminal(sweep()).splitlines()[-2]
    assert max(float(word) for word in again.split()) <= max(one.value for one in swept), "nothing is left of before"


def test_the_curve_in_the_terminal_marks_the_chosen_value(record: Sweep) -> None:
    text = sweep_in_terminal(record)
    if spots(record, record.metric):
        assert text.count("●") == 2, "once on the curve, once in the legend"
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 80
    else:
        assert "nothing to draw" in text


def test_values_that_are_not_finite_are_on_no_curve() -> None:
    assert {0.5, 1.0}.isdisjoint(spot.value for spot in spots(with_values_that_are_not_finite(), "cross-entropy"))


def test_a_value_dropped_early_is_placed_by_its_gain_not_by_its_few_images() -> None:
    spot = next(spot for spot in spots(sweep(), "cross-entropy") if spot.value == 0.8)
    assert spot.height == pytest.approx(figures(0.8).cross_entropy)
    assert spot.height != pytest.approx(spot.point.metrics.cross_entropy)


@pytest.mark.parametrize("metric", ["accuracy", "scaled-cross-entropy"])
def test_a_value_dropped_early_is_not_drawn_by_what_it_was_not_compared_by(metric: str) -> None:
    assert {0.6, 0.8, 1.0}.isdisjoint(spot.value for spot in spots(sweep(), metric))
    assert {0.0, CHOSEN} <= {spot.value for spot in spots(sweep(), metric)}
    html = sweep_page(sweep())
    assert "Not drawn: 3 values dropped early, compared with the original by cross-entropy only." in html
    assert "Not drawn after temperature scaling: 3 values" in html
    assert "Left out because not finite" not in html


def test_lines_do_not_run_across_values_that_are_not_on_them() -> None:
    swept = [point(alpha, "cross-entropy", "beaten" if alpha == 0.2 else None) for alpha in (0, 0.1, 0.2, 0.3, 0.4)]
    html = sweep_page(sweep(points=swept))
    lines = re.findall(r'<path class="line" d="(M[^"]*)"', html.replace('d="M0 6H26"', ""))
    assert [(line.count("M"), line.count("L")) for line in lines] == [(2, 2)] * 3
    assert "○" in sweep_in_terminal(sweep(points=swept))
    assert "○" not in sweep_in_terminal(sweep(points=[one for one in swept if not one.dropped]))


def test_a_hollow_mark_is_explained_wherever_it_is() -> None:
    html = sweep_page(sweep())
    charts = re.findall(r"<figure.*?</figure>", html, re.DOTALL)
    assert [DROPPED in chart for chart in charts] == ['class="dot hollow" data-x' in chart for chart in charts]
    assert DROPPED in html
    assert DROPPED in sweep_in_terminal(sweep())


@pytest.mark.parametrize("name", ["by a metric with a panel of its own", "not finite", "nothing finite", "one value"])
def test_the_picture_is_a_png(name: str, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "sweep.png"
    sweep_picture(RECORDS[name], path)
    with Image.open(path) as picture:
        picture.load()
        assert picture.format == "PNG"
        assert 1200 < picture.width < 3000
        assert 500 < picture.height < 1000
        assert len(set(picture.convert("L").resize((60, 30)).tobytes())) > 10, "it is not blank"


class Page(HTMLParser):
    """What a page holds: tags with attributes, text, and the embedded record."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.record = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append("json" if dict(attrs).get("id") == "result" else tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1] in (tag, "json"):
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "json":
            self.record += data
        elif not self.open or self.open[-1] not in ("style", "script"):
            self.text += data

    def values(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(attribute))]


def numbers_in(value: Any) -> set[float]:
    """All numbers of a record, however deep."""
    if isinstance(value, dict):
        return set().union(*(numbers_in(part) for part in value.values()))
    if isinstance(value, list | tuple):
        return set().union(*(numbers_in(part) for part in value))
    return {float(value)} if isinstance(value, int | float) else set()


def test_every_number_of_the_page_is_the_records(record: Sweep) -> None:
    page = Page(sweep_page(record))
    known = numbers_in(record.model_dump(mode="python"))
    for one in record.learned:
        known.add(one.gain_choosing - one.gain_confirming)
        known |= {sum(alphas) / len(alphas) for alphas in one.alphas.values() if isinstance(alphas, tuple)}
    original = record.settings[0].choosing.value(record.metric)
    estimated = [swept.gain.difference for swept in record.points if swept.dropped and swept.gain]
    known |= {original + gained for gained in estimated if original is not None}
    gains = [gain for one in record.settings for gain in one.gains] + [one.gain for one in record.points if one.gain]
    known |= {number for gain in gains for number in gain.improvement}
    if not record.higher_is_better:
        known |= {-one.gain_choosing for one in record.learned} | {-one.gain_confirming for one in record.learned}
        known |= {one.gain_confirming - one.gain_choosing for one in record.learned}
    shown = [float(value) for name in ("data-value", "data-low", "data-high", "data-x") for value in page.values(name)]
    assert len(shown) > 10
    assert {value for value in shown if math.isfinite(value)} <= known | {0.0}


def test_the_page_embeds_the_record(record: Sweep) -> None:
    embedded = Page(sweep_page(record)).record
    assert json.loads(embedded) == json.loads(record.model_dump_json())


def test_every_value_is_in_the_table_with_its_figures() -> None:
    record = sweep()
    html = sweep_page(record)
    table = html[html.index('id="points-table"') :]
    rows = table[table.index("<tbody>") : table.index("</tbody>")].split("</tr>")[:-1]
    assert len(rows) == len(record.points)
    for row, swept in zip(rows, record.points, strict=True):
        cells = dict(re.findall(r'data-metric="([^"]+)" data-value="([^"]*)"', row))
        assert {name: float(cells[name]) for name in ("accuracy", "top5", "cross-entropy", "scaled-cross-entropy")} == {
            name: swept.metrics.value(name) for name in ("accuracy", "top5", "cross-entropy", "scaled-cross-entropy")
        }
        assert (swept.dropped or "–") in row


def test_the_page_asks_nobody_for_anything(record: Sweep) -> None:
    html = sweep_page(record)
    assert "http://" not in html
    assert "https://" not in html
    page = Page(html)
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "embed", "base"}
    assert not page.values("src")
    assert not re.search(r"@import|url\((?!#)", html)


def test_charts_hold_only_finite_coordinates(record: Sweep) -> None:
    for drawing in re.findall(r"<svg.*?</svg>", sweep_page(record), re.DOTALL):
        assert not re.search(r'="[^"]*\b(nan|inf)\b', drawing)


def test_figures_that_are_not_finite_are_called_so() -> None:
    html = sweep_page(with_values_that_are_not_finite())
    assert "not finite" in Page(html).text
    assert "Left out because not finite: alpha 0.5, 1." in Page(html).text


def test_verdicts_are_said() -> None:
    verdicts = re.findall(r'<span class="badge [^"]*">([^<]*)<', sweep_page(sweep()))
    assert verdicts == ["not significant", "better", "not significant", "better"]


@pytest.mark.parametrize("text", ["<b>x</b>", "</script><script>alert(1)</script>", '"><i>&amp;', "<!--<script>"])
def test_names_cannot_become_markup(text: str) -> None:
    plain, page = (
        Page(sweep_page(sweep())),
        Page(sweep_page(sweep(model=text, data=text, summary=[text]))),
    )
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert not {tag for tag, _ in page.tags} - {tag for tag, _ in plain.tags}
    assert text in page.text
    assert json.loads(page.record)["model"] == text


def test_tables_and_charts_are_accessible() -> None:
    html = sweep_page(sweep())
    page = Page(html)
    assert html.count("<table") == html.count("<caption")
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    charts = [attributes for tag, attributes in page.tags if tag == "svg" and attributes.get("role") == "img"]
    identifiers = page.values("id")
    assert len(identifiers) == len(set(identifiers))
    assert len(charts) == 3
    for one in charts:
        assert set((one["aria-labelledby"] or "").split()) <= set(identifiers)


def test_layers_of_one_number_have_bars_without_whiskers() -> None:
    learned = Learned(
        kind=Learning.PER_LAYER,
        alphas={"bn1": 0.25, "layer1.0.bn1": -0.5},
        numbers=2,
        epochs=5,
        seconds=1.0,
        gain_choosing=-0.02,
        gain_confirming=-0.01,
    )
    html = sweep_page(sweep(learned=[learned]))
    bars = html[html.index('id="learned-per-layer-title"') :]
    bars = bars[: bars.index("</svg>")]
    assert re.findall(r'data-value="([^"]+)"', bars) == ["0.25", "-0.5"]
    assert "whisker" not in bars
    assert "+0.0100" in html, "the gap between the halves"


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.0, 1.0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (-0.03, 0.012, ["-0.03", "-0.02", "-0.01", "0.00", "0.01"]),
        (91.2, 91.9, ["91.2", "91.3", "91.4", "91.5", "91.6", "91.7", "91.8", "91.9"]),
        (0, 12000, ["0", "2500", "5000", "7500", "10000"]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, texts: list[str]) -> None:
    assert chart.tick_texts(chart.round_numbers(low, high)) == texts


def test_values_far_worse_do_not_flatten_the_gains() -> None:
    collapsed = Point(value=1.0, metrics=figures(1.0), gain=difference("cross-entropy", 9.0, 8.5, 9.5))
    html = sweep_page(sweep(points=[*points("cross-entropy")[:6], collapsed]))
    assert "Off the scale: alpha 1." in html


def test_a_curve_that_a_race_left_nearly_empty_is_not_drawn() -> None:
    """Of nine values, five or more that the race did not compare by accuracy; two of them are."""
    swept = [point(alpha, "cross-entropy", "beaten" if alpha > 0.3 else None) for alpha in (0, 0.3, 0.4, 0.5, 0.6, 0.8)]
    html = sweep_page(sweep(points=swept, learned=()))
    assert re.findall(r'<h3 id="([^"]*)-heading"', html) == ["cross-entropy"]
    text = "Not drawn: accuracy and cross-entropy after temperature scaling, because the race compared most values by "
    assert text + "cross-entropy only." in Page(html).text
    assert 'class="series-2' not in html


def test_a_curve_shows_what_may_be_better_where_a_value_is_far_worse() -> None:
    """The range reaches three times as far below the original as the best reaches above it, whichever way is better."""
    far = point(3.0, "cross-entropy")
    html = sweep_page(sweep(points=[*points("cross-entropy")[:5], far], learned=()))
    assert "Off the scale: alpha 3." in Page(html).text
