"""A study that an older version began, when nothing was decided by network and images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surgeon.core.errors import SurgeonError
from surgeon.studies.definition import Definition
from surgeon.studies.file import check_study
from surgeon.studies.folder import DECIDES, RECORD, StudyFolder, begin

EVERYTHING = {"epochs": 2, "lr": 0.01, "batch_size": 20, "augment": "standard", "head_scale": 1}


def study(pretrained: bool, **recipe: Any) -> Definition:
    content = {"model": "digits-resnet8", "data": "digits", "pretrained": pretrained, "recipe": recipe}
    return check_study({**content, "variants": {"plain": {}}, "seeds": 1}, Path("mine.yaml"))


def begun(place: Path, one: Definition, forgets: tuple[str, ...] = ()) -> StudyFolder:
    """A folder as an older version left it: its settings do not have keys that it did not know."""
    folder = StudyFolder(place)
    place.mkdir()
    begin(folder, one, overwrite=False)
    folder.run("plain-0").mkdir(parents=True)
    record = json.loads((place / RECORD).read_text("utf-8"))
    del record[DECIDES]
    for settings in record["runs"].values():
        for key in forgets:
            settings.pop(key, None)
    (place / RECORD).write_text(json.dumps(record), "utf-8")
    return folder


def test_runs_of_drawn_weights_go_on(tmp_path: Path) -> None:
    one = study(False, epochs=6, lr=0.1)
    assert begin(begun(tmp_path / "old", one), one, overwrite=False) == []


def test_runs_that_said_everything_go_on(tmp_path: Path) -> None:
    folder = begun(tmp_path / "old", study(True, **EVERYTHING), forgets=("head_scale",))
    assert begin(folder, study(True, **EVERYTHING), overwrite=False) == []
    assert begin(folder, study(True, **EVERYTHING), overwrite=False) == []


@pytest.mark.parametrize("key", EVERYTHING)
def test_what_would_now_be_decided_is_refused_by_name(tmp_path: Path, key: str) -> None:
    silent = study(True, **{name: value for name, value in EVERYTHING.items() if name != key})
    folder = begun(tmp_path / "old", silent)
    with pytest.raises(SurgeonError, match=rf"plain-0 was started with other settings: {key} \(of plain-0\)"):
        begin(folder, silent, overwrite=False)


def test_a_study_of_today_goes_on_whatever_it_leaves_open(tmp_path: Path) -> None:
    place = tmp_path / "new"
    place.mkdir()
    folder = StudyFolder(place)
    begin(folder, study(True), overwrite=False)
    folder.run("plain-0").mkdir(parents=True)
    assert begin(folder, study(True), overwrite=False) == []
    assert study(True).variants[0].epochs is None
