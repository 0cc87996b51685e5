"""The result of a fine-tuning run as a picture and as a web page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from surgeon.core.errors import count
from surgeon.report import svg, wording
from surgeon.report.chart import Chart, Mark, Range, Series, padded
from surgeon.report.frame import heading, render
from surgeon.report.png import save_picture
from surgeon.results import Measured

if TYPE_CHECKING:
    from surgeon.results import Epoch, FineTuning

AS_SAVED, UNCHANGED = "as saved", "as trained and saved"
CYCLE_END = "end of a cycle: a snapshot"
MOST_STEPS = 300
"""Of so many a curve is drawn."""
FAR_ABOVE = 5
"""A cross-entropy of so many times the largest training loss is off the scale."""


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Curve(NamedTuple):
    """One measure by epoch, where it was taken; a step lies between two of them."""

    name: str
    points: dict[float, float]

    @property
    def finite(self) -> dict[float, float]:
        return {epoch: value for epoch, value in self.points.items() if math.isfinite(value)}


class Panel(NamedTuple):
    """Curves that share an axis; `metric` says what their figures are."""

    key: str
    title: str
    metric: str
    curves: tuple[Curve, ...]
    extent: Range | None = None
    """The range to show, if not that of the curves."""

    @property
    def factor(self) -> int:
        return wording.shown(self.metric).factor

    @property
    def power(self) -> int:
        """The power of ten to count in, so that the numbers at the axis are short."""
        values = [value for curve in self.curves for value in curve.finite.values() if self.shows(value)]
        highest = max(values, default=0.0)
        short = wording.shown(self.metric).is_share or highest <= 0 or 1e-3 <= highest < 1e5
        return 0 if short else math.floor(math.log10(highest))

    def shows(self, value: float) -> bool:
        return self.extent is None or self.extent[0] <= value <= self.extent[1]


def training_picture(result: FineTuning, path: Path) -> None:
    """Loss, accuracy and learning rate by epoch, one beside the other as a PNG."""
    save_picture(f"{result.model} on {result.data}: {_accuracy(result)}", _charts(result), path)


def training_page(result: FineTuning) -> str:
    """The whole result of a fine-tuning run as one HTML page."""
    charts = _charts(result)
    return render(
        "training.html.j2",
        result,
        result=result,
        headline=_headline(result),
        rows=rows_of(result),
        charts=svg.drawings(charts),
        not_drawn=[chart.title.lower() for chart in charts if not chart.marks],
        cycle_ends=_cycle_ends(result),
        rate_text=_rate_text,
        rate_columns={curve.name: 0 if curve.name == "backbone" else 1 for curve in _rates(result)},
        rates_of=lambda epoch: _rates_of(epoch, _slow_head(result)),
        changed=_settings(result, changed=True),
        unchanged=_settings(result, changed=False),
        facts=_facts(result),
    )


def rows_of(result: FineTuning) -> tuple[Measured, ...]:
    """What was measured, split by split; of a run that was recorded before both settings were, what there is."""
    if result.figures:
        return tuple(_once(result.figures))
    rows = [Measured(split="validation", setting="as trained", metrics=result.validation)]
    if result.test is not None:
        rows.append(Measured(split="test", setting="as saved", tta=result.tta, metrics=result.test))
    return tuple(rows)


def _once(figures: Sequence[Measured]) -> Iterator[Measured]:
    """Where nothing was chosen, the checkpoint is the network as trained: its figures are told once."""
    for one in figures:
        others = [each for each in figures if each is not one and (each.split, each.tta) == (one.split, one.tta)]
        if all(each.metrics != one.metrics for each in others):
            yield one
        elif one.setting == AS_SAVED:
            yield one.model_copy(update={"setting": UNCHANGED})


def _cycle_ends(result: FineTuning) -> list[int]:
    """The epochs after which a snapshot was taken."""
    snapshots = result.recipe["snapshots"]
    cycle = result.recipe["epochs"] // snapshots
    return [cycle * number for number in range(1, snapshots + 1)] if snapshots > 1 else []


def _panels(result: FineTuning) -> list[Panel]:
    epochs = result.epochs
    looked_at = {epoch.number: epoch.validation for epoch in epochs if epoch.validation is not None}
    losses = (
        Curve("training loss", {epoch.number: epoch.loss for epoch in epochs}),
        Curve("validation cross-entropy", {number: metrics.cross_entropy for number, metrics in looked_at.items()}),
    )
    shares = dict.fromkeys(name for epoch in epochs for name in epoch.shares)
    told: dict[str, dict[float, float]] = {
        name: {epoch.number: epoch.shares[name] for epoch in epochs if name in epoch.shares} for name in shares
    }
    accuracies = (
        Curve("training, as augmented", {epoch.number: epoch.accuracy for epoch in epochs}),
        Curve("validation", {number: metrics.accuracy for number, metrics in looked_at.items()}),
        *(Curve(name, points) for name, points in told.items()),
    )
    rates = _rates(result)
    highest = max((value for curve in rates for value in curve.finite.values()), default=0.0)
    of_masks = (Curve("validation", {number: metrics.value("iou") or 0.0 for number, metrics in looked_at.items()}),)
    return [
        *([Panel("iou", "mean IoU", "iou", of_masks)] if result.validation.primary == "iou" else []),
        Panel("loss", "loss", "cross-entropy", losses, _close_up(*losses)),
        Panel("accuracy", "accuracy", "accuracy", accuracies),
        Panel("rate", "learning rate", "learning-rate", rates, (0.0, 1.08 * highest) if highest else None),
    ]


def _rates(result: FineTuning) -> tuple[Curve, ...]:
    """Of backbone and head by step; one curve if they are the same."""
    rates = {epoch.number: _rates_of(epoch, _slow_head(result)) for epoch in result.epochs}
    backbone, head = (_by_step({number: of_epoch[part] for number, of_epoch in rates.items()}) for part in (0, 1))
    if backbone == head:
        return (Curve("backbone and head", head),) if head else ()
    return tuple(Curve(name, points) for name, points in (("backbone", backbone), ("head", head)) if points)


def _slow_head(result: FineTuning) -> bool:
    return bool(result.recipe.get("head_lr", 1) < 1)


def _rates_of(epoch: Epoch, slow_head: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of backbone and head; of an older epoch there is one, the higher one, at its end."""
    if epoch.learning_rate is None:
        return epoch.backbone_rates, epoch.head_rates
    return ((epoch.learning_rate,), ()) if slow_head else ((), (epoch.learning_rate,))


def _by_step(rates: Mapping[int, Sequence[float]]) -> dict[float, float]:
    """The rates at the ends of steps, thinned out to what can be seen; the last of each epoch stays."""
    every = math.ceil(sum(map(len, rates.values())) / MOST_STEPS)
    return {
        number - (len(of_epoch) - step) / len(of_epoch): rate
        for number, of_epoch in rates.items()
        for step, rate in enumerate(of_epoch, 1)
        if (len(of_epoch) - step) % every == 0
    }


def _close_up(training: Curve, validation: Curve) -> Range | None:
    """A range without values that would flatten all others; None if there are no such values."""
    bound = FAR_ABOVE * max(training.finite.values(), default=math.inf)
    values = [*training.finite.values(), *validation.finite.values()]
    near = [value for value in values if value <= bound]
    return padded(near) if 0 < len(near) < len(values) else None


def _charts(result: FineTuning) -> list[Chart]:
    return [_chart(panel, _cycle_ends(result)) for panel in _panels(result)]


def _chart(panel: Panel, ends: Sequence[int]) -> Chart:
    factor = panel.factor / 10.0**panel.power
    counted_in = f" in 10{str(panel.power).translate(_SUPERSCRIPTS)}" if panel.power else ""
    series = [
        Series(
            name=curve.name,
            marks=[
                Mark(epoch, factor * value, value, f"epoch {epoch:.4g}, {curve.name}: {_figure(panel.metric, value)}")
                for epoch, value in curve.finite.items()
            ],
        )
        for curve in panel.curves
    ]
    return Chart(
        panel.key,
        heading(panel.title) + counted_in,
        "epoch",
        [one for one in series if one.marks],
        unit=wording.shown(panel.metric).suffix,
        y_range=panel.extent and (factor * panel.extent[0], factor * panel.extent[1]),
        left_out=sorted({epoch for curve in panel.curves for epoch in curve.points.keys() - curve.finite.keys()}),
        whole=True,
        table="epochs",
        ends=ends,
        ends_name=CYCLE_END,
    )


def _figure(metric: str, value: float) -> str:
    return _rate_text(value) if metric == "learning-rate" else wording.figure(metric, value)


def _rate_text(value: float | None) -> str:
    """A learning rate: they differ by orders of magnitude."""
    return wording.MISSING if value is None else f"{value:.3g}"


def _headline(result: FineTuning) -> list[str]:
    """How good the network is, on which images, and how sure that is."""
    metrics = result.test or result.validation
    if metrics.primary == "iou":
        where = count(metrics.images, f"{'test' if result.test else 'validation'} image")
        return [f"{heading(_accuracy(result))} on {where}; {metrics.accuracy:.2%} of their pixels are right."]
    interval = f"95%: {metrics.accuracy_low:.2%} to {metrics.accuracy_high:.2%}"
    which = "test" if result.test else "validation"
    said = [f"{heading(_accuracy(result))} ({interval}) on {count(metrics.images, f'{which} image')}."]
    if not result.test:
        said.append("There are no test images.")
    if metrics.nan_images:
        said.append(f"The outputs for {count(metrics.nan_images, 'image')} are not numbers and count as wrong.")
    return said


def _accuracy(result: FineTuning) -> str:
    """On test images, if there are any."""
    metrics, where = (result.test, "test") if result.test else (result.validation, "validation")
    name = metrics.primary
    return f"{where} {wording.label(name)} {wording.figure(name, metrics.value(name))}"


def _settings(result: FineTuning, *, changed: bool) -> list[tuple[str, str, str]]:
    """The keys of the recipe that differ from the defaults, or those that do not: value, and what it was decided by."""
    from surgeon.training.recipe import Recipe

    usual = Recipe().model_dump(mode="json")
    return [
        (key, _setting(value), result.decided.get(key, ""))
        for key, value in result.recipe.items()
        if (key not in usual or _setting(value) != _setting(usual[key])) is changed
    ]


def _setting(value: Any) -> str:
    """A value of the recipe; none and nothing are a dash."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value)) or wording.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return wording.MISSING if value is None else str(value)


def _facts(result: FineTuning) -> list[tuple[str, str]]:
    """How the result was made, as names and values; what does not apply is left out."""
    facts = [
        ("rewrites", result.rewrites),
        ("data", f"{result.data}, {result.classes:,} classes"),
        ("images", _image_counts(result)),
        ("unreadable images left out", wording.left_out_text(result)),
        ("preprocessing", wording.preprocessing_text(result.preprocessing)),
        ("batch size", f"{result.batch_size:,}"),
        ("trained parameters", f"{result.trained_parameters:,} of {result.parameters:,}"),
        ("test-time augmentation", result.tta if result.test is not None else None),
        ("device", result.device),
        ("training time", f"{result.seconds:,.1f} s"),
        ("checkpoint", result.checkpoint),
        ("snapshots", ", ".join(result.snapshots)),
    ]
    return [(name, value) for name, value in facts if value]


def _image_counts(result: FineTuning) -> str:
    validation = (
        f"{result.validation_images:,} validation{' (a tenth of the training images)' if result.held_back else ''}"
    )
    test = f"{result.test_images:,} test" if result.test_images else "no test images"
    unlabelled = f", {result.unlabelled_images:,} unlabelled ({result.unlabelled})" if result.unlabelled_images else ""
    return f"{result.train_images:,} training, {validation}, {test}{unlabelled}"
