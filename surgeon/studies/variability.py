"""How much the runs of a study vary: by each measure, and in comparison with those of one variant."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from surgeon.core.errors import SurgeonError
from surgeon.metrics.interval import TAIL
from surgeon.metrics.variability import Measure, Runs, compare_runs
from surgeon.metrics.variability_interval import (
    FEWEST,
    Spread,
    interval_of_ratio,
    interval_over_runs,
    ratio,
    standard_error,
)
from surgeon.results.study import Bounds, StudyVariability
from surgeon.studies.definition import SEED, Cell, Definition
from surgeon.studies.scores import Predicted, Reader

TOO_FEW = f"fewer than {FEWEST} runs"

BySeed = Mapping[int, Predicted]


def variability_of(study: Definition, reader: Reader) -> tuple[StudyVariability, ...]:
    """Every measure of every variant and evaluation that has logits of two runs or more; nothing if not asked for."""
    if study.variability is None:
        return ()
    cells = [
        Cell(variant.name, name)
        for name, evaluation in study.evaluations.items()
        for variant in study.variants
        if study.applies(name, variant) and evaluation.compares_runs
    ]
    predicted = {cell: found for cell in cells if len(found := reader.predicted(cell)) > 1}
    compared = {cell: _compared(found) for cell, found in predicted.items()}
    paired = {cell: _paired(cell, study.variability, predicted, compared) for cell in predicted}
    comparisons = sum(
        len(_shared_measures(*pair)) for cell, pair in paired.items() if pair is not None and cell != study.variability
    )
    return tuple(
        row
        for cell, runs in compared.items()
        for measure in runs.measures
        for row in _rows(study, cell, predicted[cell], runs, measure, paired[cell], comparisons)
    )


def comparisons_in(rows: Sequence[StudyVariability]) -> int:
    """How many of them are compared with the reference."""
    return sum(row.verdict != "" for row in rows)


def _compared(of_seeds: BySeed) -> Runs:
    first, *others = of_seeds.values()
    if any(not np.array_equal(first.labels, one.labels) for one in others):
        raise SurgeonError(f"{first.file} and the runs with other seeds are of different images.")
    features = [one.features for one in of_seeds.values() if one.features is not None]
    return compare_runs(
        [one.logits for one in of_seeds.values()], first.labels, features if len(features) == len(of_seeds) else None
    )


def _paired(
    cell: Cell, reference: Cell, predicted: Mapping[Cell, BySeed], compared: Mapping[Cell, Runs]
) -> tuple[Runs, Runs] | None:
    """The runs of the seeds that both have; None if there are not two."""
    if reference not in predicted:
        return None
    mine, theirs = predicted[cell], predicted[reference]
    common = [seed for seed in mine if seed in theirs]
    if len(common) < 2:
        return None

    def of(which: Cell, seeds: BySeed) -> Runs:
        return compared[which].only([list(seeds).index(seed) for seed in common])

    return of(cell, mine), of(reference, theirs)


def _shared_measures(mine: Runs, theirs: Runs) -> list[Measure]:
    return [one for one in mine.measures if one in theirs.measures]


def _rows(
    study: Definition,
    cell: Cell,
    predicted: BySeed,
    runs: Runs,
    measure: Measure,
    paired: tuple[Runs, Runs] | None,
    comparisons: int,
) -> Iterator[StudyVariability]:
    varies = next(one.varies for one in study.variants if one.name == cell.variant)
    share, usual, family, verdict = None, None, None, ""
    if paired is not None and cell != study.variability and measure in _shared_measures(*paired):
        share = ratio(*paired, measure)
        usual, family = (interval_of_ratio(*paired, measure, tail) for tail in (TAIL, TAIL / comparisons))
        verdict = _verdict(paired[0].count, share, family)
    yield StudyVariability(
        variant=cell.variant,
        evaluation=cell.evaluation,
        measure=measure.name,
        runs=runs.count,
        images=len(next(iter(predicted.values())).labels),
        is_source=varies != SEED,
        averages=study.evaluations[cell.evaluation].averages,
        value=runs.value(measure),
        error=standard_error(runs, measure),
        over_runs=_bounds(interval_over_runs(runs, measure, TAIL)),
        ratio=share,
        ratio_over_runs=_bounds(usual),
        family_ratio=_bounds(family),
        verdict=verdict,
    )


def _verdict(runs: int, share: float | None, family: Spread | None) -> str:
    """One word, if chance of training is ruled out."""
    if runs < FEWEST:
        return TOO_FEW
    if share is None or math.isnan(share):
        return "no ratio"
    if share == 0:
        return "runs are equal"
    if family is None:
        return "no interval"
    return "less" if family.high < 1 else "more" if family.low > 1 else "not significant"


def _bounds(found: Spread | None) -> Bounds | None:
    return None if found is None else Bounds(low=found.low, high=found.high)
