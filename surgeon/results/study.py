"""What `study` finds out."""

from __future__ import annotations

from enum import StrEnum

from surgeon.results.base import Result


class RunState(StrEnum):
    """How far a run and its evaluations are."""

    FINISHED = "finished"
    RUNNING = "running"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    WAITING = "waiting"


class StudyRun(Result):
    """One variant with one seed."""

    name: str
    variant: str
    seed: int
    state: RunState
    remark: str = ""
    """Why it failed, or how far it is."""
    seconds: float = 0.0
    peak_bytes: int = 0
    """The most memory that its processes had at the same time; 0 if not known."""


class Bounds(Result):
    """An interval."""

    low: float
    high: float


class SeedValue(Result):
    """The figure of one run; `seed` is None for an ensemble of all seeds."""

    seed: int | None
    value: float


class StudyRow(Result):
    """A variant in an evaluation, by one metric."""

    variant: str
    evaluation: str
    metric: str
    values: tuple[SeedValue, ...]
    mean: float
    deviation: float | None
    """Standard deviation over seeds; None for fewer than two."""
    over_seeds: Bounds | None
    """95% interval of the mean, for other seeds on the same images (Student's t)."""
    over_images: Bounds | None
    """95% interval of the mean, for the same runs on other images; None if the metric is not a mean over images."""
    images: int | None


class StudyDifference(Result):
    """A row less its baseline's row: by seed, and by image."""

    variant: str
    evaluation: str
    baseline: str
    baseline_evaluation: str
    metric: str
    higher_is_better: bool
    seeds: int
    """Pairs of runs with the same seed; 0 if an ensemble of all seeds is compared."""
    difference: float
    over_seeds: Bounds | None
    """95% interval, for other seeds on the same images."""
    over_images: Bounds | None
    """95% interval, for the same runs on other images."""
    family_over_seeds: Bounds | None
    """The same, corrected for the number of differences in the table (Bonferroni)."""
    family_over_images: Bounds | None
    verdict: str
    """`better` or `worse` if both corrected intervals exclude zero; otherwise why not."""


class StudyVariability(Result):
    """How much the runs of a variant vary in an evaluation, by one measure."""

    variant: str
    evaluation: str
    measure: str
    """`accuracy-sd`, `cross-entropy-sd`, `disagreement`, `correlation`, `ensembling-gain` or `similarity`."""
    runs: int
    images: int
    is_source: bool
    """Whether only one source of randomness differs between the runs."""
    averages: bool
    """Whether each run's predictions are averages over snapshots or views."""
    value: float
    error: float | None
    """Standard error: of a standard deviation by the bootstrap of runs, of a mean over pairs by the jackknife."""
    over_runs: Bounds | None
    """95% interval, for other runs on the same images."""
    ratio: float | None
    """Ratio to the reference, of the values or of their distances from 1; None for the reference itself."""
    ratio_over_runs: Bounds | None
    """95% interval."""
    family_ratio: Bounds | None
    """The same, corrected for the number of ratios in the table (Bonferroni)."""
    verdict: str
    """`less` or `more` than the reference if the corrected interval excludes 1; otherwise why not."""


class Study(Result):
    """The result of a study, `result.json`."""

    schema_version: int = 1
    name: str
    description: str
    runs: tuple[StudyRun, ...]
    rows: tuple[StudyRow, ...]
    differences: tuple[StudyDifference, ...]
    comparisons: int
    """Number of differences in the table, for which the intervals `family_…` are corrected."""
    variability: tuple[StudyVariability, ...] = ()
    variability_reference: str = ""
    """The `variant/evaluation` that ratios refer to."""
    variability_comparisons: int = 0
    """Number of ratios, for which the intervals `family_ratio` are corrected."""
    notes: tuple[str, ...] = ()
    """Notes on the figures, in sentences."""
    output: str

    def count(self, state: RunState) -> int:
        """How many runs are in a state."""
        return sum(run.state is state for run in self.runs)


class PlannedRun(Result):
    """A run of a study that is not finished."""

    name: str
    state: RunState
    seconds: float
    bytes: int


class StudyPlan(Result):
    """What `surgeon study plan` says."""

    name: str
    runs: int
    finished: int
    missing: tuple[PlannedRun, ...]
    evaluations: int
    """Processes that evaluate, of all missing runs."""
    jobs: int
    seconds: float
    """Of everything that is missing, with so many jobs."""
    bytes: int
    free_bytes: int
    memory_bytes: int
    """Of one run; 0 if not known."""
    measured: str
    """What the times are taken from."""
