"""Settings of a network that compete under several conditions, by the mean over these, and on clean images beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from surgeon.conditions.base import Asked
from surgeon.data.loaders import Batch
from surgeon.measuring.axes import Axis, Value
from surgeon.measuring.conditions import ConditionMaker
from surgeon.measuring.contest import Contest, Measurement
from surgeon.measuring.runner import Runner
from surgeon.measuring.spreading import Samples
from surgeon.measuring.variants import Condition, Variant
from surgeon.metrics import Scores, summarise
from surgeon.metrics.pooling import AnyScores, ScoresUnder
from surgeon.models.origin import Preprocessing

CLEAN = "clean"
SEPARATOR = "\n"
"""Between a setting and a condition, in the name of a variant."""
_ROUNDING = 1e-9


class MeasurementUnder(Measurement):
    """Takes in the scores of every setting under every condition. What is compared is the mean over the conditions."""

    nothing = staticmethod(partial(ScoresUnder, {}))

    @cached_property
    def clean(self) -> dict[str, Scores]:
        """The scores of every setting on clean images."""
        return {name: Scores() for name in self.names}

    def add(self, end: int, scores: Mapping[str, AnyScores]) -> None:
        by_setting: dict[str, dict[str, Scores]] = {}
        for name, of_block in scores.items():
            setting, _, condition = name.partition(SEPARATOR)
            assert isinstance(of_block, Scores)
            by_setting.setdefault(setting, {})[condition] = of_block
        for setting, of_conditions in by_setting.items():
            self.clean[setting] = self.clean[setting].absorb(of_conditions.pop(CLEAN))
        super().add(end, {setting: ScoresUnder(of_conditions) for setting, of_conditions in by_setting.items()})


class ContestUnder(MeasurementUnder, Contest):
    """The best setting under the conditions wins, among those that lose little enough on clean images."""

    most_loss: float | None = None
    """The most accuracy that a setting may lose on clean images."""

    def barred(self) -> str | None:
        """The setting that would have won but for what it loses on clean images."""
        first = super()._ranking()[0]
        return None if self._allowed(first) else first

    def _ranking(self) -> list[str]:
        return sorted(super()._ranking(), key=lambda name: not self._allowed(name))

    def _allowed(self, name: str) -> bool:
        if self.most_loss is None or name == self.original:
            return True
        primary = self.clean[name].primary
        before, after = (summarise(self.clean[one]).value(primary) or 0.0 for one in (self.original, name))
        return before - after <= self.most_loss + _ROUNDING


@dataclass
class RunnerUnder(Runner):
    """Lets settings compete under the conditions of each phase, and on clean images."""

    preprocessing: Preprocessing | None = None
    conditions: Mapping[str, Sequence[Asked]] = field(default_factory=dict)
    """Under which conditions, by phase."""
    maker: ConditionMaker = field(default_factory=ConditionMaker)

    def hold(self, phase: str, contest: Measurement, settings: Mapping[str, Value], samples: Samples) -> None:
        """Run a contest to its end, from where its journal stands."""

        def variants(names: Sequence[str]) -> dict[str, Variant]:
            return {
                f"{name}{SEPARATOR}{one.name}": Variant(
                    self.model, self.inference, condition=made, axis=self.axis, value=settings[name]
                )
                for one in self.conditions[phase]
                for name, made in ((name, self._made(one, settings[name])) for name in names)
            } | {
                f"{name}{SEPARATOR}{CLEAN}": Variant(self.model, self.inference, axis=self.axis, value=settings[name])
                for name in names
            }

        self.books.hold(phase, contest, variants, samples)
        contest.forwards *= len(self.conditions[phase]) + 1

    def _made(self, asked: Asked, value: Value) -> Condition | None:
        assert self.preprocessing is not None
        made = self.maker.make(asked, self.preprocessing, self.model, self.inference.outputs)
        if made is None or not asked.condition.needs_network or getattr(asked.config, "source", None) is not None:
            return made
        return _AtValue(made, self.axis, value)

    def seconds_of(self, settings: Mapping[str, Value], samples: Samples) -> float | None:
        """About how long all settings take under all conditions, without what it takes to make these."""
        seconds = super().seconds_of(settings, samples)
        return None if seconds is None else seconds * (1 + max(map(len, self.conditions.values())))


@dataclass(frozen=True, eq=False)
class _AtValue:
    """A condition that is made for the network at one of its settings, such as an attack."""

    condition: Condition
    axis: Axis
    value: Value

    def __call__(self, batch: Batch) -> Batch:
        self.axis.set(self.value)
        return self.condition(batch)
