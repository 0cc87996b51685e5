"""What a plan says of a folder in which some runs are trained, some evaluated, and some evaluations have changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surgeon.commands.study.planning import plan_study
from surgeon.core.errors import SurgeonError
from surgeon.results import StudyPlan
from surgeon.studies.definition import Definition
from surgeon.studies.file import check_study
from surgeon.studies.folder import StudyFolder, begin, only_study_in
from surgeon.studies.tasks import tasks_of

CONTENT: dict[str, Any] = {
    "model": "digits-resnet8",
    "data": "digits",
    "variants": {"plain": None},
    "seeds": 3,
    "evaluations": {"test": None, "flip": {"tta": "flip"}},
}


def definition(**changes: Any) -> Definition:
    return check_study({**CONTENT, **changes}, Path("mine.yaml"))


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    """The first run is done, the second is trained, the third has not begun."""
    place, study = StudyFolder(tmp_path), definition()
    with only_study_in(place):
        begin(place, study, overwrite=False)
    first, second, _ = tasks_of(study, place)
    for step in (*first.steps, second.steps[0]):
        step.file.parent.mkdir(parents=True, exist_ok=True)
        step.file.write_text("x" * 1000)
    for task, seconds in ((first, {"finetune": 100.0, "eval flip": 10.0}), (second, {"finetune": 140.0})):
        task.notes.parent.mkdir(exist_ok=True)
        task.notes.write_text(json.dumps({"error": "", "seconds": seconds, "peak_bytes": 5}))
    return place


def plan(study: Definition, folder: StudyFolder) -> StudyPlan:
    return plan_study(study, folder.path, 1, print)


def test_only_what_is_missing_takes_time_and_disk(folder: StudyFolder) -> None:
    found = plan(definition(), folder)
    assert (found.runs, found.finished, found.evaluations) == (3, 1, 2)
    assert [(run.name, run.seconds, run.bytes) for run in found.missing] == [
        ("plain-1", 10.0, 1000),
        ("plain-2", 130.0, 2000),
    ]


def test_a_changed_evaluation_is_missing(folder: StudyFolder) -> None:
    found = plan(definition(evaluations={"test": None, "flip": {"tta": "flip-crop"}}), folder)
    assert (found.finished, found.evaluations) == (0, 3)
    assert found.missing[0].seconds == 10.0
    # Who else takes part in it does not change what was measured.
    assert (
        plan(definition(evaluations={"test": None, "flip": {"tta": "flip", "variants": "plain"}}), folder).finished == 1
    )


def test_what_the_study_would_refuse_is_refused(folder: StudyFolder) -> None:
    with pytest.raises(SurgeonError, match="started with other settings: lr"):
        plan(definition(recipe={"lr": 0.5}), folder)
