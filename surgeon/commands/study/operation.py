"""The `study` command's whole operation: lock the folder, do what is missing, and write the table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from surgeon.core.atomic import staged
from surgeon.core.errors import Interrupted, SurgeonError, count
from surgeon.report.study import study_files
from surgeon.results import RunState, Study
from surgeon.studies.definition import Definition
from surgeon.studies.folder import StudyFolder, begin, only_study_in
from surgeon.studies.local import Watcher, run_locally
from surgeon.studies.on_ray import run_on_ray
from surgeon.studies.table import table_of
from surgeon.studies.tasks import Task, tasks_of


@dataclass(frozen=True)
class StudyRequest:
    """Where a study lives and what does its work."""

    output: Path
    jobs: int | None = None
    ray: str | None = None
    overwrite: bool = False


class _Remembering:
    """Passes everything on, and keeps why runs have failed: on a full disk nothing else does."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.errors: dict[str, str] = {}

    def began(self, task: Task) -> None:
        self._watcher.began(task)

    def ended(self, task: Task, error: str) -> None:
        if error:
            self.errors[task.name] = error
        self._watcher.ended(task, error)

    def says(self, sentence: str) -> None:
        self._watcher.says(sentence)


def run_study(study: Definition, request: StudyRequest, watcher: Watcher) -> Study:
    """Do all that is missing, whatever fails on the way, and write the table of what there is."""
    if request.jobs is not None and request.ray is not None:
        raise SurgeonError("--jobs are processes of this machine, and --ray is a cluster: pass one of them.")
    if request.output.exists() and not request.output.is_dir():
        raise SurgeonError(f"{request.output} exists and is not a folder.", "Choose another destination with -o.")
    folder = StudyFolder(request.output)
    with only_study_in(folder):
        for sentence in begin(folder, study, request.overwrite):
            watcher.says(sentence)
        tasks = tasks_of(study, folder)
        missing = [task for task in tasks if not task.is_done]
        if len(missing) < len(tasks):
            watcher.says(f"{len(tasks) - len(missing)} of {count(len(tasks), 'run')} are finished already.")
        remembering = _Remembering(watcher)
        try:
            if request.ray is not None and missing:
                run_on_ray(missing, request.ray, study, remembering)
            elif missing:
                run_locally(missing, request.jobs, study.memory, remembering)
        except KeyboardInterrupt:
            _write(table_of(study, folder), folder)
            raise Interrupted(f"{folder.path} has all runs so far") from None
        result = table_of(study, folder, remembering.errors)
        _write(result, folder)
    return result


def _write(result: Study, folder: StudyFolder) -> None:
    files = study_files(result)
    with staged(folder.path, tuple(files)) as stage:
        for name, write in files.items():
            write(stage / name)


def show_study(output: Path) -> Study:
    """The table so far, of a study that may be running."""
    folder = StudyFolder(output)
    return table_of(folder.definition(), folder)


def failed_runs(result: Study) -> list[str]:
    """The names of runs that have failed."""
    return [run.name for run in result.runs if run.state is RunState.FAILED]
