"""The steps of a sweep: let values compete, learn finer ones, confirm on held-out images, and say what it means."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from surgeon.commands.storing import decide
from surgeon.commands.sweep.confirming import best_of, widened
from surgeon.commands.sweep.learning import epochs_for, learn_alphas
from surgeon.commands.sweep.verdict import in_sentences
from surgeon.core.errors import SurgeonError
from surgeon.measuring.axes import AlphaAxis, Axis, Pair, Value
from surgeon.measuring.comparison import gain_of_temperature, gain_over
from surgeon.measuring.contest import FEWEST_RUNNING, Contest, Measurement
from surgeon.measuring.keeping import REST
from surgeon.measuring.own_score import OwnContest, OwnMeasurement, OwnRunner
from surgeon.measuring.product_axis import SEPARATOR
from surgeon.measuring.runner import Runner
from surgeon.measuring.shortcut import can_interpolate, take_shortcut
from surgeon.measuring.spreading import Samples
from surgeon.measuring.under import ContestUnder, MeasurementUnder, RunnerUnder
from surgeon.metrics import Metric, Scores, metrics, summarise
from surgeon.metrics.pooling import AnyScores
from surgeon.problems import CLASSIFICATION
from surgeon.results import Gain, Interpolation, Learned, Learning, Method, Point, Setting, Spent, Sweep

ORIGINAL = "original"
ESTIMATING, CHOOSING, FITTED, CONFIRMING = "estimating", "choosing", "measuring what was learned", "confirming"
# Up to here a grid is cheap, so nothing has to be risked to save work.
FEW_IMAGES = 1000
A_MINUTE = 60.0


@dataclass(frozen=True)
class Question:
    """What is to be found out."""

    values: tuple[float, ...] | tuple[Pair, ...]
    metric: Metric
    method: Method | None = None
    """None is a grid where that is cheap, otherwise a race."""
    learn: tuple[Learning, ...] = ()
    force: bool = False
    """Keep the best setting even if its gain may be noise."""
    most_clean_loss: float | None = None
    """The most accuracy that a setting may lose on clean images, where it is chosen under other conditions."""


class Investigation:
    """Answers a question on images to choose with, and on others to confirm with if there are any."""

    def __init__(self, runner: Runner, question: Question, choosing: Samples, confirming: Samples | None) -> None:
        self.runner = runner
        self.question = question
        self.choosing = choosing
        self.confirming = confirming
        axis = runner.axis
        values = sorted({*question.values, axis.original})
        self.values: dict[str, float | Pair] = {_name(axis, value): value for value in values}
        self.settings: dict[str, Value] = dict(self.values)
        self.forwards = 0
        self.interpolation: Interpolation | None = None
        self.clean: dict[str, dict[str, Scores]] = {}
        """The scores on clean images, by phase, where settings compete under other conditions."""

    def run(self, **about: Any) -> Sweep:
        """The whole result; `about` says what the network and the images are."""
        start = time.perf_counter()
        method = self.question.method or self._method()
        contest = self._compete(method)
        chosen = contest.best()
        chosen_scores = dict(contest.scores)
        learned = [self._learn(kind, _numbers(self.values[chosen])[0]) for kind in self.question.learn]
        names = list(dict.fromkeys([ORIGINAL, chosen, *(name for name, _ in learned)]))
        if learned:
            chosen_scores |= self._measure(FITTED, [name for name, _ in learned], self.choosing)
        confirmed = self._measure(CONFIRMING, names, self.confirming) if self.confirming is not None else {}
        candidates = [name for name in names if name != ORIGINAL]
        settings = {name: self._setting(name, chosen_scores, confirmed, len(candidates)) for name in names}
        finished = [self._with_gains(record, name, chosen_scores, settings) for name, record in learned]
        best = settings[best_of([chosen, *(name for name, _ in learned)], ORIGINAL, self.question.metric, settings)]
        # The choice among values took no part of the held-out images, and that among settings has widened the gains.
        decision = decide(
            best.name,
            best.gain(self.question.metric.name),
            tried=1 if confirmed else len(self.values) - 1,
            force=self.question.force,
        )
        kept = best.name if decision.stored else ORIGINAL
        self.runner.axis.set(self.settings[kept])
        original = settings[ORIGINAL]
        axis, *second_axis = self.runner.axis.name.split(SEPARATOR)
        first_original, *second_original = _numbers(self.runner.axis.original)
        first_chosen, *second_chosen = _numbers(self.values[chosen])
        pairs = [(record, settings[name]) for record, (name, _) in zip(finished, learned, strict=True)]
        return Sweep(
            axis=axis,
            second_axis=next(iter(second_axis), None),
            metric=self.question.metric.name,
            higher_is_better=self.question.metric.higher_is_better,
            method=method,
            interpolation=self.interpolation,
            original=first_original,
            second_original=next(iter(second_original), None),
            points=tuple(self._point(name, contest) for name in self.values),
            chosen=first_chosen,
            second_chosen=next(iter(second_chosen), None),
            settings=tuple(settings.values()),
            best=best.name,
            learned=tuple(finished),
            kept=kept,
            forced=decision.forced,
            decision=decision.reason,
            temperature=settings[kept].choosing.temperature,
            temperature_gain=self._temperature_gain(kept, chosen_scores, confirmed),
            summary=in_sentences(
                self.runner.axis.name,
                self.question.metric.name,
                original,
                settings[chosen],
                pairs,
                best,
                barred=contest.barred() if isinstance(contest, ContestUnder) else None,
            ),
            choosing_images=len(chosen_scores[ORIGINAL]),
            confirming_images=len(confirmed[ORIGINAL]) if confirmed else 0,
            bad_images=tuple(self.runner.bad),
            image_forwards=self.forwards,
            seconds=(seconds := time.perf_counter() - start),
            spent=self._spent(seconds),
            **about,
        )

    def _spent(self, seconds: float) -> tuple[Spent, ...]:
        """Where the time of the sweep went, as far as it was measured."""
        known: dict[str, float] = dict(self.runner.spent)
        known[REST] = max(seconds - sum(known.values()), 0.0)
        return tuple(Spent(what=what, seconds=seconds) for what, seconds in known.items())

    def _method(self) -> Method:
        """A grid where it is cheap. What was found out by the clock is journalled: going on must not change it."""
        few_images = (len(self.choosing) - 1) * self.choosing.batch_size < FEW_IMAGES  # the last batch may be small
        if few_images or self.runner.axis.passes(len(self.values)) <= FEWEST_RUNNING:
            return Method.GRID
        found = self.runner.once(ESTIMATING, lambda: {"seconds": self.runner.seconds_of(self.settings, self.choosing)})
        return Method.GRID if found["seconds"] is not None and found["seconds"] <= A_MINUTE else Method.RACE

    def _compete(self, method: Method) -> Contest:
        metric, choosing = self.question.metric, self.choosing
        _, *others = self._compared()
        kind = Contest
        if isinstance(self.runner, RunnerUnder):
            kind = ContestUnder
        elif isinstance(self.runner, OwnRunner):
            kind = OwnContest
        contest = kind(
            list(self.values), ORIGINAL, metric, method, len(choosing), choosing.batch_size, others, self._steps_away()
        )
        if isinstance(contest, ContestUnder):
            contest.most_loss = self.question.most_clean_loss
            self.clean[CHOOSING] = contest.clean
        contest.passes = self.runner.axis.passes
        if method is Method.RACE and can_interpolate(self.runner, list(self.values), choosing):
            values = {name: cast("float", value) for name, value in self.values.items()}
            self.interpolation = take_shortcut(contest, self.runner, values, choosing)
        self.runner.hold(CHOOSING, contest, self.settings, self.choosing)
        self.forwards += contest.forwards
        return contest

    def _compared(self) -> list[Metric]:
        """What settings are compared by: the metric of the sweep first, then the usual ones of the problem."""
        metric = self.question.metric
        if not metric.of_classes:
            return [metric]
        compared = self.runner.inference.problem.scores().compared
        return [metric, *(metrics[name] for name in compared if name != metric.name)]

    def _steps_away(self) -> dict[str, int]:
        """How many swept values each setting is from the original, on both axes together where there are two."""
        numbers = {name: _numbers(value) for name, value in self.values.items()}
        scales = [sorted(set(axis)) for axis in zip(*numbers.values(), strict=True)]
        places = {
            name: [scale.index(number) for scale, number in zip(scales, of_setting, strict=True)]
            for name, of_setting in numbers.items()
        }
        return {
            name: sum(abs(here - there) for here, there in zip(place, places[ORIGINAL], strict=True))
            for name, place in places.items()
        }

    def _measure(self, phase: str, names: Sequence[str], batches: Samples) -> dict[str, AnyScores]:
        kind = Measurement
        if isinstance(self.runner, RunnerUnder):
            kind = MeasurementUnder
        elif isinstance(self.runner, OwnRunner):
            kind = OwnMeasurement
        measurement = kind(names, len(batches))
        if isinstance(measurement, MeasurementUnder):
            self.clean[phase] = measurement.clean
        measurement.passes = self.runner.axis.passes
        self.runner.hold(phase, measurement, self.settings, batches)
        self.forwards += measurement.forwards
        return measurement.scores

    def _learn(self, kind: Learning, start: float) -> tuple[str, Learned]:
        if self.runner.inference.problem is not CLASSIFICATION:
            raise SurgeonError(
                "Alpha per layer or channel is fitted to classes of images, not to masks.",
                "Leave --per-layer and --per-channel out.",
            )
        name = f"{self.runner.axis.name} {kind.value.replace('-', ' ')}"
        learned = self.runner.once(kind.value, lambda: self._fit(kind, start).model_dump(mode="json"))
        record = Learned.model_validate(learned)
        self.settings[name] = record.alphas
        return name, record

    def _fit(self, kind: Learning, start: float) -> Learned:
        axis = self.runner.axis
        if not isinstance(axis, AlphaAxis):
            raise SurgeonError(f"{axis.name} is one number for the whole network: there is nothing to learn per layer.")
        began = time.perf_counter()
        epochs = epochs_for(len(self.choosing))
        alphas = learn_alphas(
            self.runner.model,
            axis.layers,
            self.choosing,
            epochs,
            kind,
            start,
            with_temperature=self.question.metric.name != "cross-entropy",
            outputs=self.runner.inference.outputs,
            progress=lambda done, planned: self.runner.progress(f"learning {kind.value}", done, planned),
        )
        return Learned(
            kind=kind,
            alphas=alphas,
            numbers=sum(len(alpha) if isinstance(alpha, tuple) else 1 for alpha in alphas.values()),
            epochs=epochs,
            seconds=time.perf_counter() - began,
            gain_choosing=0.0,
            gain_confirming=0.0,
        )

    def _with_gains(
        self, record: Learned, name: str, scores: Mapping[str, AnyScores], settings: Mapping[str, Setting]
    ) -> Learned:
        metric = self.question.metric
        held_back = settings[name].gain(metric.name)
        assert held_back is not None
        fitted = gain_over(scores[ORIGINAL], scores[name], metric)
        update = {"gain_choosing": fitted.difference, "gain_confirming": held_back.difference}
        return record.model_copy(update=update)

    def _setting(
        self, name: str, choosing: Mapping[str, AnyScores], confirming: Mapping[str, AnyScores], candidates: int
    ) -> Setting:
        fitted_on = (choosing[name], choosing[ORIGINAL])
        gains = []
        for metric in self._compared() if name != ORIGINAL else ():
            if confirming:
                gain = gain_over(confirming[ORIGINAL], confirming[name], metric, fitted_on)
                gains.append(widened(gain, candidates))
            else:
                gains.append(gain_over(choosing[ORIGINAL], choosing[name], metric))
        clean = self.clean.get(CONFIRMING if confirming else CHOOSING)
        primary = metrics[self.runner.inference.problem.default_metric]
        return Setting(
            name=name,
            clean=summarise(clean[name]) if clean else None,
            clean_gain=gain_over(clean[ORIGINAL], clean[name], primary) if clean and name != ORIGINAL else None,
            choosing=summarise(choosing[name]),
            confirming=summarise(confirming[name], choosing[name]) if confirming else None,
            gains=tuple(gains),
        )

    def _temperature_gain(
        self, name: str, choosing: Mapping[str, AnyScores], confirming: Mapping[str, AnyScores]
    ) -> Gain | None:
        """What the temperature adds to a setting; None where none can be fitted."""
        if not self.question.metric.of_classes or choosing[name].images().scaled.temperature is None:
            return None
        return (
            gain_of_temperature(confirming[name], choosing[name]) if confirming else gain_of_temperature(choosing[name])
        )

    def _point(self, name: str, contest: Contest) -> Point:
        value, *second = _numbers(self.values[name])
        return Point(
            value=value,
            second=next(iter(second), None),
            metrics=summarise(contest.scores[name]),
            gain=contest.gains.get(name),
            other_gains=contest.other_gains.get(name, ()),
            dropped=contest.dropped.get(name),
            clean=summarise(contest.clean[name]) if isinstance(contest, ContestUnder) else None,
        )


def _name(axis: Axis, value: float | Pair) -> str:
    if value == axis.original:
        return ORIGINAL
    parts = zip(axis.name.split(SEPARATOR), _numbers(value), strict=True)
    return ", ".join(f"{name} {number:.10g}" for name, number in parts)


def _numbers(value: float | Pair) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)
