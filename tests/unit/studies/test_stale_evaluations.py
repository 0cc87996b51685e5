"""What was measured of a network that is gone is not taken for the figures of the one that is trained in its place."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from surgeon.core.errors import SurgeonError
from surgeon.studies import execution
from surgeon.studies.execution import Running
from surgeon.studies.file import check_study
from surgeon.studies.folder import StudyFolder, begin, only_study_in
from surgeon.studies.tasks import Task, tasks_of

CONTENT: dict[str, Any] = {
    "model": "digits-resnet8",
    "data": "digits",
    "variants": {"plain": None},
    "seeds": 1,
    "evaluations": {"soft": {"alpha": 0.1}},
}


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """A run that has been evaluated; processes end at once."""
    monkeypatch.setattr(execution, "_start", lambda *_: subprocess.Popen(["true"]))
    (found,) = tasks_of(check_study(CONTENT, Path("mine.yaml")), StudyFolder(tmp_path))
    for step in found.steps:
        step.file.parent.mkdir(parents=True, exist_ok=True)
        step.file.touch()
    return found


def test_a_run_that_is_trained_again_is_measured_again(task: Task) -> None:
    task.steps[0].file.unlink()
    Running(task, 1).stop()
    assert not any(step.is_done for step in task.steps)


def test_an_evaluation_that_is_missing_leaves_the_others(task: Task) -> None:
    task.steps[2].file.unlink()
    Running(task, 1).stop()
    assert [step.is_done for step in task.steps] == [True, True, False]


def test_a_run_that_cannot_be_removed_does_not_get_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, changed = StudyFolder(tmp_path), check_study({**CONTENT, "recipe": {"lr": 0.5}}, Path("mine.yaml"))
    with only_study_in(folder):
        begin(folder, check_study(CONTENT, Path("mine.yaml")), overwrite=False)
    folder.run("plain-0").mkdir(parents=True)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("surgeon.studies.folder.shutil.rmtree", refuse)
    with only_study_in(folder), pytest.raises(SurgeonError, match=r"Could not remove .*plain-0: Permission denied"):
        begin(folder, changed, overwrite=True)
    assert "0.5" not in (tmp_path / "study.json").read_text()
