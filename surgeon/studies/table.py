"""The table of a study, finished or not: means over seeds, differences from the baselines, and how sure both are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev

from surgeon.core.errors import listing
from surgeon.metrics import ImageScores, Interval, metrics
from surgeon.metrics.interval import TAIL
from surgeon.metrics.seeds import image_interval, seed_interval
from surgeon.results.study import Bounds, RunState, SeedValue, Study, StudyDifference, StudyRow, StudyRun
from surgeon.studies.definition import Cell, Comparison, Definition
from surgeon.studies.execution import Notes, progress_of
from surgeon.studies.folder import StudyFolder
from surgeon.studies.scores import Measured, Reader
from surgeon.studies.tasks import Task, tasks_of
from surgeon.studies.variability import comparisons_in, variability_of
from surgeon.training.state import STATE

OfSeeds = Mapping[int | None, Measured]
ONE_SEED = "one seed: training noise unknown"
CONCLUSIVE = BETTER, WORSE = "better", "worse"
NOT_SIGNIFICANT = "not significant"
MOST_FINDINGS = 6


def table_of(study: Definition, folder: StudyFolder, errors: Mapping[str, str] | None = None) -> Study:
    """Everything that is known so far.

    Args:
        study: The study.
        folder: Its folder.
        errors: Why runs have just failed, by name, for those that could not write that down.
    """
    reader = Reader(study, folder)
    cells = [Cell(v.name, name) for name in study.evaluations for v in study.variants if study.applies(name, v)]
    measured = {cell: reader.measured(cell) for cell in cells}
    comparisons = len(study.comparisons) * len(study.metrics)
    runs = tuple(run_of(task, folder, (errors or {}).get(task.name, "")) for task in tasks_of(study, folder))
    rows = tuple(row for metric in study.metrics for cell in cells for row in _row(cell, measured[cell], metric))
    differences = tuple(
        found
        for metric in study.metrics
        for one in study.comparisons
        for found in _difference(one, measured[one.candidate], measured[one.baseline], metric, comparisons)
    )
    variability = variability_of(study, reader)
    return Study(
        name=study.name,
        description=study.description,
        runs=runs,
        rows=rows,
        differences=differences,
        comparisons=comparisons,
        variability=variability,
        variability_reference=str(study.variability) if variability else "",
        variability_comparisons=comparisons_in(variability),
        notes=(*_findings(differences), *_notes(study, runs, comparisons, comparisons_in(variability))),
        output=str(folder.path),
    )


def run_of(task: Task, folder: StudyFolder, error: str = "") -> StudyRun:
    """How far a run is; `error` says why it has just failed, if it could not write that down."""
    notes = Notes.read(task.notes)
    state, remark = RunState.WAITING, ""
    if task.is_done:
        state = RunState.FINISHED
    elif error or notes.error:
        state, remark = RunState.FAILED, error or notes.error
    elif folder.is_running(task.name):
        state, remark = RunState.RUNNING, progress_of(task.log)
    elif task.steps[0].is_done or (folder.run(task.name) / STATE).is_file():
        state = RunState.UNFINISHED
    return StudyRun(
        name=task.name,
        variant=task.variant,
        seed=task.seed,
        state=state,
        remark=remark,
        seconds=math.fsum(notes.seconds.values()),
        peak_bytes=notes.peak_bytes,
    )


def _row(cell: Cell, of_seeds: OfSeeds, metric: str) -> Iterator[StudyRow]:
    values = _values(of_seeds, metric)
    if not values:
        return
    numbers = list(values.values())
    scores, bounds = _scores(of_seeds, values), metrics[metric].bounds
    yield StudyRow(
        variant=cell.variant,
        evaluation=cell.evaluation,
        metric=metric,
        values=tuple(SeedValue(seed=seed, value=value) for seed, value in values.items()),
        mean=fmean(numbers),
        deviation=stdev(numbers) if len(numbers) > 1 and all(map(math.isfinite, numbers)) else None,
        over_seeds=_bounds(seed_interval(numbers), *bounds),
        over_images=_bounds(image_interval(metrics[metric], scores), *bounds) if scores else None,
        images=(len(scores[0].under[0]) if scores[0].under else len(scores[0])) if scores else None,
    )


def _difference(
    comparison: Comparison, candidate: OfSeeds, baseline: OfSeeds, metric: str, comparisons: int
) -> Iterator[StudyDifference]:
    mine, theirs = _values(candidate, metric), _values(baseline, metric)
    if not mine or not theirs:
        return
    if None in mine or None in theirs:  # an ensemble of all seeds, against the mean of the others
        paired: list[float] = []
        scores, others = _scores(candidate, mine), _scores(baseline, theirs)
        difference = _less(fmean(mine.values()), fmean(theirs.values()))
    else:
        common = [seed for seed in mine if seed in theirs]
        if not common:
            return
        paired = [_less(mine[seed], theirs[seed]) for seed in common]
        scores, others = _scores(candidate, common), _scores(baseline, common)
        difference = fmean(paired)
    registered = metrics[metric]
    tails = TAIL, TAIL / comparisons
    over_seeds, family_seeds = (seed_interval(paired, tail) for tail in tails)
    over_images = family_images = None
    if scores and others:
        over_images, family_images = (image_interval(registered, scores, others, tail) for tail in tails)
    yield StudyDifference(
        variant=comparison.candidate.variant,
        evaluation=comparison.candidate.evaluation,
        baseline=comparison.baseline.variant,
        baseline_evaluation=comparison.baseline.evaluation,
        metric=metric,
        higher_is_better=registered.higher_is_better,
        seeds=len(paired),
        difference=difference,
        over_seeds=_bounds(over_seeds),
        over_images=_bounds(over_images),
        family_over_seeds=_bounds(family_seeds),
        family_over_images=_bounds(family_images),
        verdict=verdict(len(paired), family_seeds, family_images, registered.higher_is_better),
    )


def verdict(seeds: int, over_seeds: Interval | None, over_images: Interval | None, higher_is_better: bool) -> str:
    """One word, if chance of training and of the images are both ruled out."""
    if seeds == 0:
        return "one ensemble: training noise unknown"
    if seeds == 1:
        return ONE_SEED
    if over_seeds is None:
        return "not finite"
    known = [interval for interval in (over_seeds, over_images) if interval is not None]
    if all(interval.low > 0 for interval in known):
        return BETTER if higher_is_better else WORSE
    if all(interval.high < 0 for interval in known):
        return WORSE if higher_is_better else BETTER
    return NOT_SIGNIFICANT


def _values(of_seeds: OfSeeds, metric: str) -> dict[int | None, float]:
    found = {seed: one.value(metric) for seed, one in of_seeds.items()}
    return {seed: value for seed, value in found.items() if value is not None}


def _scores(of_seeds: OfSeeds, seeds: Sequence[int | None] | Mapping[int | None, float]) -> list[ImageScores]:
    """Of all these seeds, or none."""
    found = [scores for seed in seeds if (scores := of_seeds[seed].scores) is not None]
    return found if len(found) == len(seeds) else []


def _less(one: float, other: float) -> float:
    return 0.0 if one == other else one - other


def _bounds(interval: Interval | None, least: float = -math.inf, most: float = math.inf) -> Bounds | None:
    return None if interval is None else Bounds(low=max(interval.low, least), high=min(interval.high, most))


def _findings(differences: Sequence[StudyDifference]) -> Iterator[str]:
    """What the comparisons say, in a sentence; nothing where no comparison could have said anything."""
    several = len({one.evaluation for one in differences}) > 1
    found = [
        f"{Cell(one.variant, one.evaluation) if several else one.variant} is {one.verdict} than "
        f"{Cell(one.baseline, one.baseline_evaluation) if several else one.baseline} ({one.metric})"
        for one in differences
        if one.verdict in CONCLUSIVE
    ]
    if found:
        yield f"Significant: {listing(found, limit=MOST_FINDINGS)}."
    elif any(one.verdict == NOT_SIGNIFICANT for one in differences):
        yield "No difference is significant."


def _notes(study: Definition, runs: Sequence[StudyRun], comparisons: int, ratios: int) -> Iterator[str]:
    if len(study.seeds) == 1:
        yield "One seed: there is no standard deviation, and no interval over seeds."
        if study.variability is not None:
            yield "Variability needs two runs or more."
    if ratios > 1:
        yield f"{ratios} ratios of variability: verdicts use Bonferroni-corrected intervals."
    if comparisons > 1:
        yield (
            f"{comparisons} comparisons: at 95% each, {comparisons * 0.05:.1f} would look significant by chance. "
            "Verdicts use Bonferroni-corrected intervals."
        )
    missing = sum(run.state is not RunState.FINISHED for run in runs)
    if missing:
        yield f"{missing} of {len(runs)} runs are not finished: differences are of the seeds that both have."
