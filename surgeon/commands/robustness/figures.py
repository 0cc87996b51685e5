"""From scores per image under each condition to figures: errors, means over corruptions, calibration, differences.

The images are the sampling unit: an image under 75 conditions is one image. Means over conditions are therefore
averaged within each image first, and networks are compared image by image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surgeon.commands.robustness.alexnet import CLEAN_ERROR, ERRORS
from surgeon.conditions.attacks.masking import masking_checks
from surgeon.conditions.base import Asked, Family
from surgeon.conditions.groups import FIFTEEN
from surgeon.core.errors import SurgeonError
from surgeon.measuring.comparison import gain_over
from surgeon.metrics import Scores, compare_scores, figure_interval, metrics, summarise
from surgeon.metrics.pooling import ScoresUnder, weighted_difference, weighted_error, wrong
from surgeon.results.robustness import AttackCheck, ConditionFigures, CorruptionFigures, Difference, Figure

CLEAN = "clean"
SEVERITIES = 5
CALIBRATION = ("cross-entropy", "ece", "rms", "mad", "aurra", "soft-f1")


@dataclass(frozen=True)
class Column:
    """A condition as a column of tables: one that surgeon makes, or one that the data hold."""

    condition: str
    name: str
    family: str
    severity: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: Asked) -> Column:
        options = asked.config.model_dump(mode="json", exclude_none=True)
        return cls(asked.name, asked.condition.name, asked.condition.family.value, asked.severity, options)

    @property
    def is_corruption(self) -> bool:
        """Whether it counts for the means over corruptions: the extra ones of the paper do not."""
        return self.severity is not None and self.family != Family.EXTRA.value


Measured = Mapping[str, Scores]
"""The scores of one network, by condition."""


def _of_masks(measured: Measured) -> bool:
    return next(iter(measured.values())).images().of_masks


def is_complete(columns: Sequence[Column]) -> bool:
    """Whether the corruptions are all fifteen at all severities."""
    found = {(column.name, column.severity) for column in columns if column.is_corruption}
    return found == {(name, severity) for name in ERRORS for severity in range(1, SEVERITIES + 1)}


def condition_figures(
    columns: Sequence[Column], measured: Measured, baseline: Measured | None
) -> tuple[ConditionFigures, ...]:
    """Every condition, against clean images and against the baseline."""
    clean = measured.get(CLEAN)
    primary = metrics[next(iter(measured.values())).primary]
    return tuple(
        ConditionFigures(
            condition=column.condition,
            name=column.name,
            family=column.family,
            severity=column.severity,
            options=dict(column.options),
            metrics=summarise(scores := measured[column.condition]),
            against_clean=gain_over(clean, scores, primary) if clean is not None and scores is not clean else None,
            against_baseline=gain_over(baseline[column.condition], scores, primary) if baseline is not None else None,
        )
        for column in columns
    )


def corruption_figures(
    columns: Sequence[Column], measured: Measured, baseline: Measured | None, imagenet: bool
) -> tuple[CorruptionFigures, ...]:
    """Every corruption over its severities."""
    found = []
    for name in dict.fromkeys(column.name for column in columns if column.severity is not None):
        members = [column for column in columns if column.name == name and column.severity is not None]
        weights = dict.fromkeys((column.condition for column in members), 1 / len(members))
        error = _weighted("corruption-error", weights, measured, baseline)
        comparable = imagenet and name in ERRORS and len(members) == SEVERITIES
        found.append(
            CorruptionFigures(
                corruption=name,
                family=members[0].family,
                severities=tuple(column.severity for column in members if column.severity is not None),
                error=error,
                relative_to_alexnet=error.value / ERRORS[name] if comparable else None,
            )
        )
    return tuple(found)


def summary_figures(
    columns: Sequence[Column], measured: Measured, baseline: Measured | None, imagenet: bool
) -> tuple[Figure, ...]:
    """Clean images, means over the corruptions, and calibration under them."""
    found: list[Figure] = []
    clean = {CLEAN: 1.0} if CLEAN in measured else {}
    if clean:
        found.append(_weighted("clean-error", clean, measured, baseline))
    corruptions = [column for column in columns if column.is_corruption]
    if corruptions:
        mean = mean_weights(corruptions)
        found.append(_weighted("corruption-error", mean, measured, baseline))
        if clean:
            found.append(_weighted("loss", mean | {CLEAN: -1.0}, measured, baseline))
        if imagenet and is_complete(columns):
            found.append(_weighted("mce", _mce(corruptions), measured, baseline))
            if clean:
                found.append(_weighted("relative-mce", _relative_mce(corruptions), measured, baseline))
        names = [name for name in CALIBRATION if metrics[name].applies_to_masks(_of_masks(measured))]
        found += [_calibration(name, corruptions, measured, baseline) for name in names]
    return tuple(found)


def mean_weights(columns: Sequence[Column]) -> dict[str, float]:
    """Every corruption counts alike, and within it every severity."""
    severities = {name: sum(column.name == name for column in columns) for name in {c.name for c in columns}}
    return {column.condition: 1 / (len(severities) * severities[column.name]) for column in columns}


def _mce(columns: Sequence[Column]) -> dict[str, float]:
    return {name: weight / ERRORS[_of(columns, name)] for name, weight in mean_weights(columns).items()}


def _relative_mce(columns: Sequence[Column]) -> dict[str, float]:
    """The increase of the error over that of AlexNet, corruption by corruption."""
    weights = {
        name: weight / (ERRORS[_of(columns, name)] - CLEAN_ERROR) for name, weight in mean_weights(columns).items()
    }
    return weights | {CLEAN: -sum(weights.values())}


def _of(columns: Sequence[Column], condition: str) -> str:
    return next(column.name for column in columns if column.condition == condition)


def _weighted(key: str, weights: Mapping[str, float], measured: Measured, baseline: Measured | None) -> Figure:
    numbers: NDArray[np.float64] = np.array(list(weights.values()))
    errors = wrong([measured[name] for name in weights])
    kind = {"right_or_wrong": not _of_masks(measured)}
    value, (low, high) = weighted_error(errors, numbers, **kind)
    against = None
    if baseline is not None:
        others = wrong([baseline[name] for name in weights])
        if others.shape != errors.shape:
            raise SurgeonError("The networks were not measured on the same images.")
        difference, interval = weighted_difference(errors, others, numbers, **kind)
        against = Difference(difference=difference, low=interval.low, high=interval.high)
    return Figure(key=key, value=value, low=low, high=high, against_baseline=against)


def _calibration(name: str, columns: Sequence[Column], measured: Measured, baseline: Measured | None) -> Figure:
    """Of the predictions under all corruptions together."""
    metric = metrics[name]
    own, other = (
        ScoresUnder({column.condition: of[column.condition] for column in columns}) if of is not None else None
        for of in (measured, baseline)
    )
    assert own is not None
    images = own.images()
    low, high = figure_interval(metric, images)
    against = None
    if other is not None:
        compared = compare_scores(metric, own, other)
        against = Difference(difference=compared.difference, low=compared.low, high=compared.high)
    value = metric.of(images).compute(images)
    assert value is not None
    return Figure(key=name, value=value, low=low, high=high, against_baseline=against)


def attack_checks(columns: Sequence[Column], measured: Measured) -> tuple[AttackCheck, ...]:
    """Signs that gradients are masked, so that an attack says nothing."""
    if _of_masks(measured):
        return ()
    names = [c.condition for c in columns if c.family == Family.ATTACK.value or c.name == CLEAN]
    right = {name: measured[name].images().correct.tolist() for name in names}
    return tuple(
        AttackCheck(
            expectation=check.expectation.value,
            weaker=check.weaker,
            stronger=check.stronger,
            weaker_accuracy=check.accuracies[0] / 100,
            stronger_accuracy=check.accuracies[1] / 100,
            probability=check.probability,
            passed=check.passed,
        )
        for check in masking_checks(right)
    )


def families_chosen_on() -> tuple[str, str]:
    """The families of corruptions that settings are chosen on where others are held out."""
    return FIFTEEN[0].value, FIFTEEN[1].value
