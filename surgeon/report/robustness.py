"""Robustness as a picture and as a page: errors by corruption and severity, curves, and what they mean."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgeon.core.errors import count
from surgeon.report import svg, wording
from surgeon.report.chart import AnyChart, Cell, Chart, GroupedBars, HeatMap, Mark, Series
from surgeon.report.frame import render, unbroken
from surgeon.report.png import save_picture
from surgeon.report.robustness_text import against_text, headed, in_sentences, names_of, value_text

if TYPE_CHECKING:
    from surgeon.results import ConditionFigures, Figure, NetworkRobustness, Robustness

MOST_MAPS = 4
METRICS = ("iou", "accuracy", "cross-entropy", "ece", "rms", "mad", "aurra", "soft-f1")


def robustness_picture(result: Robustness, path: Path) -> None:
    """The charts that matter most, beside one another as a PNG."""
    charts: list[AnyChart] = [*_bars(result), *_maps(result)[:2], *_curves(result), *_fourier(result)[:1]]
    title = f"{', '.join(names_of(result)[:3])} on {result.data} ({result.images:,} images)"
    if not charts:
        charts = [_conditions_chart(result)]
    save_picture(title, charts, path)


def robustness_page(result: Robustness, examples: bytes = b"") -> str:
    """The whole result as one HTML page; `examples` is a PNG of images under the conditions."""
    fourier = _fourier(result)  # bars of as many frequencies would show the same once more
    return render(
        "robustness.html.j2",
        result,
        result=result,
        names=names_of(result),
        sentences=in_sentences(result),
        bars=svg.group_drawings(_bars(result) or ([] if fourier else [_conditions_chart(result)])),
        maps=svg.heat_drawings([*_maps(result), *fourier]),
        curves=svg.drawings(_curves(result)),
        examples=base64.b64encode(examples).decode(),
        metrics_shown=_metrics_shown(result),
        checks=[(name, check) for name, network in _named(result) for check in network.attack_checks],
        has_clean=any(one.against_clean for _, network in _named(result) for one in network.conditions),
        figure_label=lambda key: unbroken(headed(key)),
        value_text=value_text,
        against_text=against_text,
        alexnet=any(network.figure("mce") for network in result.networks),
        facts=_facts(result),
    )


def _metrics_shown(result: Robustness) -> list[str]:
    """Of every condition: those that the images have a value of."""
    conditions = [one.metrics for network in result.networks for one in network.conditions]
    return [name for name in METRICS if any(metrics.value(name) is not None for metrics in conditions)]


def _percent(figure: Figure, text: str) -> Mark:
    return Mark(0, 100 * figure.value, figure.value, text, (100 * figure.low, 100 * figure.high))


def _bars(result: Robustness) -> list[GroupedBars]:
    """The error under each corruption, one bar for every network."""
    groups = [one.corruption for one in result.networks[0].corruptions]
    if not groups:
        return []
    series = [
        (
            name,
            [_percent(one.error, f"{name}, {one.corruption}: error {one.error.value:.2%}") for one in of.corruptions],
        )
        for name, of in zip(names_of(result), result.networks, strict=True)
    ]
    note = "Mean over the severities, with 95% intervals."
    return [GroupedBars("corruptions", "Error by corruption", groups, series, "%", note, "corruptions")]


def _conditions_chart(result: Robustness) -> GroupedBars:
    groups = [one.condition for one in result.networks[0].conditions]
    series = [(name, [_error_mark(name, one) for one in of.conditions]) for name, of in _named(result)]
    return GroupedBars("conditions", "Error by condition", groups, series, "%", "With 95% intervals.", "conditions")


def _error_mark(name: str, one: ConditionFigures, x: float = 0.0) -> Mark:
    interval = None
    if one.metrics.primary == "accuracy":
        interval = 100 * (1 - one.metrics.accuracy_high), 100 * (1 - one.metrics.accuracy_low)
    return Mark(x, 100 * one.error, one.error, f"{name}, {one.condition}: error {one.error:.2%}", interval)


def _maps(result: Robustness) -> list[HeatMap]:
    """Error by corruption and severity, one map for each network."""
    found = []
    for number, (name, network) in enumerate(_named(result)):
        shown = [one for one in network.conditions if one.severity is not None]
        rows = list(dict.fromkeys(one.name for one in shown))
        columns = sorted({one.severity for one in shown if one.severity is not None})
        if len(shown) < 2 or number >= MOST_MAPS:
            continue
        cells = [
            Cell(
                columns.index(one.severity),
                rows.index(one.name),
                one.error,
                one.error,
                f"{one.error:.1%}",
                f"{name}, {one.condition}: error {one.error:.2%}",
            )
            for one in shown
            if one.severity is not None
        ]
        found.append(
            HeatMap(
                f"map-{number}",
                f"Error of {name}",
                "severity",
                "",
                [str(column) for column in columns],
                rows,
                cells,
                higher_is_better=True,
                table="conditions",
                marks="The larger the error, the stronger the colour.",
                empty_because="not measured",
            )
        )
    return found


def _fourier(result: Robustness) -> list[HeatMap]:
    """Error under noise of single frequencies, the low ones in the centre."""
    found = []
    for number, (name, network) in enumerate(_named(result)):
        shown = {
            (float(one.options["row"]), float(one.options["column"])): one
            for one in network.conditions
            if one.name == "fourier" and {"row", "column"} <= set(one.options)
        }
        # A frequency and its mirror image are the same noise: one of both was measured.
        shown |= {(-row + 0.0, -column + 0.0): one for (row, column), one in shown.items()}
        rows, columns = (sorted({pair[axis] for pair in shown}) for axis in (0, 1))
        if len(shown) < 4 or number >= MOST_MAPS:
            continue
        cells = [
            Cell(
                columns.index(column),
                rows.index(row),
                one.error,
                one.error,
                f"{100 * one.error:.0f}",
                f"{name}, frequency {row:g} (rows), {column:g} (columns): error {one.error:.2%}",
            )
            for (row, column), one in shown.items()
        ]
        found.append(
            HeatMap(
                f"fourier-{number}",
                f"Fourier sensitivity of {name}",
                "horizontal frequency, share of the highest",
                "vertical frequency",
                [f"{column:g}" for column in columns],
                [f"{row:g}" for row in rows],
                cells,
                higher_is_better=True,
                table="conditions",
                marks="Error in % under noise of one frequency; low ones are in the centre. The larger, the stronger "
                "the colour.",
            )
        )
    return found


def _curves(result: Robustness) -> list[Chart]:
    """Trade-off, low-pass and attack curves, those that were measured."""
    return [*_trade_off(result), *_low_pass(result), *_attacks(result, "eps"), *_attacks(result, "steps")]


def _trade_off(result: Robustness) -> Iterator[Chart]:
    series = []
    for name, network in _named(result):
        clean, error = network.figure("clean-error"), network.figure("corruption-error")
        if clean is not None and error is not None:
            text = f"{name}: clean accuracy {1 - clean.value:.2%}, mean corruption error {error.value:.2%}"
            interval = 100 * error.low, 100 * error.high
            series.append(Series(name, [Mark(100 * (1 - clean.value), 100 * error.value, error.value, text, interval)]))
    if len(series) > 1:
        yield Chart(
            "trade-off",
            "Mean corruption error against clean accuracy",
            "accuracy on clean images, %",
            series,
            unit="%",
            table="figures",
            intervals_name="95% interval",
            remark="Best is at the bottom right.",
        )


def _low_pass(result: Robustness) -> Iterator[Chart]:
    series = [
        Series(
            name,
            [
                _accuracy_mark(name, one, float(one.options["bandwidth"]))
                for one in sorted(_with(network, "low-pass", "bandwidth"), key=lambda one: one.options["bandwidth"])
            ],
        )
        for name, network in _named(result)
    ]
    if len(series[0].marks) > 1:
        yield Chart(
            "low-pass",
            "Accuracy on low frequencies alone",
            "bandwidth, share of the spectrum",
            series,
            unit="%",
            table="conditions",
            intervals_name="95% interval",
        )


def _attacks(result: Robustness, option: str) -> Iterator[Chart]:
    """Accuracy against an option of an attack, for every attack that was made with several values of it."""
    series = []
    for name, network in _named(result):
        groups: dict[tuple[object, ...], list[ConditionFigures]] = {}
        for one in network.conditions:
            if one.family == "attack" and option in one.options:
                others = tuple(sorted((key, str(value)) for key, value in one.options.items() if key != option))
                groups.setdefault((one.name, others), []).append(one)
        for (attack, _), members in groups.items():
            if len(members) > 1:
                marks = [_accuracy_mark(name, one, float(one.options[option])) for one in members]
                series.append(Series(f"{name}, {attack}", sorted(marks)))
    if series:
        yield Chart(
            f"attack-{option}",
            f"Accuracy under attack against {option}",
            option,
            series,
            unit="%",
            whole=option == "steps",
            table="conditions",
            intervals_name="95% interval",
        )


def _with(network: NetworkRobustness, name: str, option: str) -> list[ConditionFigures]:
    return [one for one in network.conditions if one.name == name and option in one.options]


def _accuracy_mark(name: str, one: ConditionFigures, x: float) -> Mark:
    figures = one.metrics
    if figures.primary != "accuracy":
        value = 1 - one.error
        return Mark(x, 100 * value, value, f"{name}, {one.condition}: {wording.label(figures.primary)} {value:.2%}")
    interval = 100 * figures.accuracy_low, 100 * figures.accuracy_high
    text = f"{name}, {one.condition}: accuracy {figures.accuracy:.2%}"
    return Mark(x, 100 * figures.accuracy, figures.accuracy, text, interval)


def _named(result: Robustness) -> list[tuple[str, NetworkRobustness]]:
    return list(zip(names_of(result), result.networks, strict=True))


def _facts(result: Robustness) -> list[tuple[str, Any]]:
    kinds: Sequence[str] = list(
        dict.fromkeys(wording.preprocessing_text(network.preprocessing) for network in result.networks)
    )
    facts = [
        ("networks", "; ".join(f"{n.model}{f' ({n.rewrites})' if n.rewrites else ''}" for n in result.networks)),
        ("images", f"{result.data}, split {result.split}, {count(result.images, 'image')}"),
        ("conditions", f"{len(result.networks[0].conditions)}, "
         f"{f'made here with seed {result.seed}' if result.made_here else 'held by the data'}"),
        ("intervals", "95%, with images as the sampling unit: an image under many conditions is one image"),
        ("classes", wording.matched_text(result.matched_classes)),
        ("unreadable images left out", ", ".join(result.bad_images)),
        ("preprocessing", "; ".join(kinds)),
        ("test-time augmentation", result.tta and f"{result.tta}, {result.views} views per image"),
        ("device", f"{result.device}, {result.precision}"),
        ("time", f"{result.seconds:,.1f} s"),
    ]  # fmt: skip
    return [(name, value) for name, value in facts if value]
