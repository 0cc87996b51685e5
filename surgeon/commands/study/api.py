"""Studies from Python."""

from __future__ import annotations

from pathlib import Path

from surgeon.commands.study.operation import StudyRequest, run_study
from surgeon.results import Study
from surgeon.studies.file import load_study
from surgeon.studies.tasks import Task


class _Silent:
    """Ignores all events."""

    def began(self, task: Task) -> None:
        pass

    def ended(self, task: Task, error: str) -> None:
        pass

    def says(self, sentence: str) -> None:
        pass


def study(
    file: str | Path,
    output: str | Path,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    overwrite: bool = False,
    data: str | Path | None = None,
    weights: str | Path | None = None,
) -> Study:
    """What `surgeon study` does: many runs, evaluated and compared; what is finished is not done again.

    A run that fails does not stop the others and raises nothing: `result.runs` says how each has ended.

    Args:
        file: The study, a YAML file.
        output: The folder of the study.
        jobs: How many runs at a time; by default as many as there are cores and memory for.
        ray: The address of a Ray cluster, `auto` or `local`, in place of processes of this machine.
        overwrite: Train runs afresh that were started with other settings.
        data: Other images than the file names.
        weights: Other weights than the file names.

    Examples:
        >>> result = surgeon.study("digits.yaml", "runs/digits", jobs=2)
        >>> [(one.variant, one.difference, one.verdict) for one in result.differences]
    """
    given = {"data": data, "weights": weights}
    definition = load_study(Path(file), {key: str(value) for key, value in given.items() if value is not None})
    return run_study(definition, StudyRequest(Path(output), jobs, ray, overwrite), _Silent())
