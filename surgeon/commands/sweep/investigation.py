"""The steps of a sweep: let values compete, learn finer ones, confirm on images held back, and say what it means."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surgeon.commands.storing import decide
from surgeon.commands.sweep.learning import epochs_for, learn_alphas
from surgeon.commands.sweep.verdict import in_sentences
from surgeon.core.errors import SurgeonError
from surgeon.measuring.axes import AlphaAxis, Value
from surgeon.measuring.comparison import gain_of_temperature, gain_over
from surgeon.measuring.contest import Contest, Measurement, merit
from surgeon.measuring.runner import BatchSource, Runner
from surgeon.metrics import Metric, Scores, metrics, summarise
from surgeon.results import Gain, Learned, Learning, Method, Point, Setting, Sweep

ORIGINAL = "original"
ALWAYS_COMPARED = ("accuracy", "cross-entropy", "scaled-cross-entropy")
CHOOSING, FITTED, CONFIRMING = "choosing", "measuring what was learned", "confirming"


@dataclass(frozen=True)
class Question:
    """What is to be found out."""

    values: tuple[float, ...]
    metric: Metric
    method: Method
    learn: tuple[Learning, ...] = ()
    force: bool = False
    """Keep the best setting even if its gain may be noise."""


class Investigation:
    """Answers a question on images to choose with, and on others to confirm with if there are any."""

    def __init__(
        self, runner: Runner, question: Question, choosing: BatchSource, confirming: BatchSource | None
    ) -> None:
        self.runner = runner
        self.question = question
        self.choosing = choosing
        self.confirming = confirming
        axis = runner.axis
        values = sorted({*question.values, axis.original})
        self.values: dict[str, float] = {_name(axis.name, value, axis.original): value for value in values}
        self.settings: dict[str, Value] = dict(self.values)
        self.forwards = 0

    def run(self, **about: Any) -> Sweep:
        """The whole result; `about` says what the network and the images are."""
        start = time.perf_counter()
        contest = self._compete()
        chosen = contest.best()
        chosen_scores = dict(contest.scores)
        learned = [self._learn(kind, self.values[chosen]) for kind in self.question.learn]
        names = list(dict.fromkeys([ORIGINAL, chosen, *(name for name, _ in learned)]))
        if learned:
            chosen_scores |= self._measure(FITTED, [name for name, _ in learned], self.choosing)
        confirmed = self._measure(CONFIRMING, names, self.confirming) if self.confirming is not None else {}
        settings = {name: self._setting(name, chosen_scores, confirmed) for name in names}
        finished = [self._with_gains(record, name, chosen_scores, settings) for name, record in learned]
        best = settings[self._best(chosen, [name for name, _ in learned], settings)]
        # Images held back took no part in the choice, so there no value had more chances than others.
        decision = decide(
            best.name,
            best.gain(self.question.metric.name),
            tried=1 if confirmed else len(self.values) - 1,
            force=self.question.force,
        )
        kept = best.name if decision.stored else ORIGINAL
        self.runner.axis.set(self.settings[kept])
        original = settings[ORIGINAL]
        pairs = [(record, settings[name]) for record, (name, _) in zip(finished, learned, strict=True)]
        return Sweep(
            axis=self.runner.axis.name,
            metric=self.question.metric.name,
            higher_is_better=self.question.metric.higher_is_better,
            method=self.question.method,
            original=self.runner.axis.original,
            points=tuple(self._point(name, contest) for name in self.values),
            chosen=self.values[chosen],
            settings=tuple(settings.values()),
            best=best.name,
            learned=tuple(finished),
            kept=kept,
            forced=decision.forced,
            decision=decision.reason,
            temperature=settings[kept].choosing.temperature,
            temperature_gain=self._temperature_gain(kept, chosen_scores, confirmed),
            summary=in_sentences(
                self.runner.axis.name, self.question.metric.name, original, settings[chosen], pairs, best
            ),
            choosing_images=len(chosen_scores[ORIGINAL]),
            confirming_images=len(confirmed[ORIGINAL]) if confirmed else 0,
            bad_images=tuple(self.runner.bad),
            image_forwards=self.forwards,
            seconds=time.perf_counter() - start,
            **about,
        )

    def _compete(self) -> Contest:
        names = list(self.values)
        contest = Contest(names, ORIGINAL, self.question.metric, self.question.method, len(self.choosing))
        contest.passes = self.runner.axis.passes
        self.runner.hold(CHOOSING, contest, self.settings, self.choosing)
        self.forwards += contest.forwards
        return contest

    def _measure(self, phase: str, names: Sequence[str], batches: BatchSource) -> dict[str, Scores]:
        measurement = Measurement(names, len(batches))
        measurement.passes = self.runner.axis.passes
        self.runner.hold(phase, measurement, self.settings, batches)
        self.forwards += measurement.forwards
        return measurement.scores

    def _learn(self, kind: Learning, start: float) -> tuple[str, Learned]:
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
            progress=lambda done, planned: self.runner.progress(f"learning {kind.value}", done, planned, 1),
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
        self, record: Learned, name: str, scores: Mapping[str, Scores], settings: Mapping[str, Setting]
    ) -> Learned:
        metric = self.question.metric
        held_back = settings[name].gain(metric.name)
        assert held_back is not None
        fitted = gain_over(scores[ORIGINAL], scores[name], metric)
        update = {"gain_choosing": fitted.difference, "gain_confirming": held_back.difference}
        return record.model_copy(update=update)

    def _setting(self, name: str, choosing: Mapping[str, Scores], confirming: Mapping[str, Scores]) -> Setting:
        fitted_on = (choosing[name], choosing[ORIGINAL])
        gains = []
        for metric in dict.fromkeys((self.question.metric.name, *ALWAYS_COMPARED)) if name != ORIGINAL else ():
            if confirming:
                gains.append(gain_over(confirming[ORIGINAL], confirming[name], metrics[metric], fitted_on))
            else:
                gains.append(gain_over(choosing[ORIGINAL], choosing[name], metrics[metric]))
        return Setting(
            name=name,
            choosing=summarise(choosing[name]),
            confirming=summarise(confirming[name], choosing[name]) if confirming else None,
            gains=tuple(gains),
        )

    def _temperature_gain(
        self, name: str, choosing: Mapping[str, Scores], confirming: Mapping[str, Scores]
    ) -> Gain | None:
        """What the temperature adds to a setting; None where none can be fitted."""
        if choosing[name].images().scaled.temperature is None:
            return None
        return (
            gain_of_temperature(confirming[name], choosing[name]) if confirming else gain_of_temperature(choosing[name])
        )

    def _best(self, chosen: str, learned: Sequence[str], settings: Mapping[str, Setting]) -> str:
        """The best on the images held back, of equal ones the simplest; the original where all were refuted."""
        metric = self.question.metric
        gains = {name: settings[name].gain(metric.name) for name in (chosen, *learned)}
        holding_up = [name for name, gain in gains.items() if gain is None or gain.within_noise or gain.better]
        return max(holding_up or [ORIGINAL], key=lambda name: merit(metric, settings[name].reported))

    def _point(self, name: str, contest: Contest) -> Point:
        return Point(
            value=self.values[name],
            metrics=summarise(contest.scores[name]),
            gain=contest.gains.get(name),
            dropped=contest.dropped.get(name),
        )


def _name(axis: str, value: float, original: float) -> str:
    return ORIGINAL if value == original else f"{axis} {value:.10g}"
