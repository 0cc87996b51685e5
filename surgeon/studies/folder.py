"""The folder of a study: where everything lies, what was begun there, and the lock that keeps a second study out."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from surgeon.core.atomic import staged
from surgeon.core.errors import ExitCode, SurgeonError, listing
from surgeon.core.reading import parse_json, read_bounded
from surgeon.studies.definition import Definition, Evaluation, Variant

RECORD, LOCK, MOST_RECORD_BYTES = "study.json", ".lock", 1 << 26
SCHEMA = 1
DECIDES = "network and images decide"
"""In the record of a study whose runs leave to network and images what their recipes do not say."""
BEFORE_DECIDING: dict[bool, dict[str, Any]] = {
    True: {"epochs": 10, "lr": 0.01, "batch_size": 64, "augment": ["standard"], "head_scale": 1.0},
    False: {"epochs": 10, "lr": 0.01},
}
"""What older records mean where they are silent, with pretrained and with drawn weights; the rest is as it was."""


class StudyFolder:
    """Paths within the folder of a study."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def run(self, name: str) -> Path:
        """The folder of a `finetune` run."""
        return self.path / "runs" / name

    def evaluations(self, run: str) -> Path:
        """Where the logits of a run's networks are."""
        return self.path / "evaluations" / run

    def recipe(self, variant: str) -> Path:
        return self.path / "recipes" / f"{variant}.yaml"

    def log(self, run: str) -> Path:
        """What the processes of a run have said."""
        return self.path / "logs" / f"{run}.log"

    def notes(self, run: str) -> Path:
        """How the processes of a run have ended, how long they took, and how much memory."""
        return self.path / "logs" / f"{run}.json"

    def lock(self, run: str) -> Path:
        return self.path / "logs" / f".{run}.lock"

    def read_record(self) -> dict[str, Any] | None:
        """What was begun here, or nothing."""
        path = self.path / RECORD
        if not path.exists():
            return None
        try:
            record = parse_json(read_bounded(path, "record of a study", MOST_RECORD_BYTES))
            if not isinstance(record, dict) or record.get("schema") != SCHEMA or not isinstance(record["runs"], dict):
                raise ValueError("it is of another kind")
        except (ValueError, KeyError) as error:
            raise SurgeonError(f"{path} is not the record of a study ({error}).", "Choose another folder.") from None
        return record

    def definition(self) -> Definition:
        """The study of this folder."""
        record = self.read_record()
        if record is None:
            raise SurgeonError(f"There is no study in {self.path}.", "Start one: surgeon study FILE -o DIR.")
        try:
            return Definition.model_validate(record["study"])
        except (ValidationError, KeyError):
            raise SurgeonError(
                f"{self.path / RECORD} is not the record of a study.", "Choose another folder."
            ) from None

    def is_running(self, run: str | None = None) -> bool:
        """Whether a process is at work on a run, or on the study itself."""
        path = self.path / LOCK if run is None else self.lock(run)
        with suppress(OSError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


@contextmanager
def only_study_in(folder: StudyFolder) -> Iterator[None]:
    """Keep other studies out; when this process ends, however it ends, the system lets go of the lock."""
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        file = (folder.path / LOCK).open("wb")
    except OSError as error:
        raise SurgeonError(f"Could not write {folder.path}: {error.strerror}.", exit_code=ExitCode.FAILED) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SurgeonError(
                f"Another process is running the study in {folder.path}.",
                f"Look at it with `surgeon study show {folder.path}`, or choose another folder.",
                ExitCode.FAILED,
            ) from None
        yield


def begin(folder: StudyFolder, study: Definition, overwrite: bool) -> list[str]:
    """Write down what is studied; runs that were started with other settings are refused, or with `overwrite` removed.

    Returns:
        What is different from the study that the folder held before, in sentences.
    """
    record = folder.read_record()
    if record is None and any(entry.name != LOCK for entry in folder.path.iterdir()):
        raise SurgeonError(f"{folder.path} is not empty and does not hold a study.", "Choose another folder with -o.")
    before: dict[str, Any] = _as_begun(record) if record is not None else {}
    sentences = _changes(record, study) if record is not None else []
    wanted = _wanted(study)
    changed = _begun_otherwise(folder, before, wanted)
    if changed and not overwrite:
        _refuse(changed)
    for name in changed:
        for path in (folder.run(name), folder.evaluations(name)):
            _remove(path)
        folder.notes(name).unlink(missing_ok=True)
        sentences.append(f"{name} is trained again.")
    evaluations = {name: one.model_dump(mode="json") for name, one in study.evaluations.items()}
    measured = record.get("evaluations", {}) if record is not None else {}
    for name in changed_evaluations(record, study):
        for file in (folder.path / "evaluations").glob(f"*/{name}--*"):
            _remove(file)
        sentences.append(f"The evaluation {name!r} has changed and is measured again.")
    _write(folder, study, {**before, **{name: one.settings for name, one in wanted.items()}}, measured | evaluations)
    return sentences


def _remove(path: Path) -> None:
    """A file or a folder, if it is there; what cannot be removed must not be taken for the result of other settings."""
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise SurgeonError(f"Could not remove {path}: {error.strerror}.", exit_code=ExitCode.FAILED) from None


def refuse_other_settings(folder: StudyFolder, study: Definition) -> None:
    """Refuse a study some of whose runs were started with other settings."""
    if (record := folder.read_record()) is not None and (
        changed := _begun_otherwise(folder, record["runs"], _wanted(study))
    ):
        _refuse(changed)


def changed_evaluations(record: Mapping[str, Any] | None, study: Definition) -> list[str]:
    """Evaluations that were something else when they were last measured."""
    measured = record.get("evaluations", {}) if record is not None else {}
    named = {name: one for name, one in study.evaluations.items() if name in measured}
    return [name for name, one in named.items() if _asked(_evaluation(measured[name])) != _asked(one)]


def _wanted(study: Definition) -> dict[str, Variant]:
    return {f"{variant.name}-{seed}": variant for variant in study.variants for seed in study.seeds}


def _begun_otherwise(
    folder: StudyFolder, before: Mapping[str, Any], wanted: Mapping[str, Variant]
) -> dict[str, list[str]]:
    """Runs that were started with other settings, with the keys that differ."""
    other = {name: _different(before[name], wanted[name]) for name in wanted if name in before}
    return {name: keys for name, keys in other.items() if keys and folder.run(name).exists()}


def _refuse(changed: Mapping[str, list[str]]) -> None:
    name, keys = next(iter(changed.items()))
    raise SurgeonError(
        f"{listing(changed, limit=3)} {'was' if len(changed) == 1 else 'were'} started with other settings: "
        f"{listing(keys)} (of {name}).",
        "Give the changed variant another name, or pass --overwrite to train it again.",
    )


def _write(folder: StudyFolder, study: Definition, runs: Mapping[str, Any], evaluations: Mapping[str, Any]) -> None:
    from yaml import safe_dump

    recipes = {folder.recipe(one.name): safe_dump(one.recipe, allow_unicode=True) for one in study.variants}
    record = {"schema": SCHEMA, DECIDES: True, "study": study.model_dump(mode="json")}
    record |= {"runs": runs, "evaluations": evaluations}
    names = [*(str(path.relative_to(folder.path)) for path in recipes), RECORD]
    with staged(folder.path, names) as stage:
        (stage / "recipes").mkdir()
        for path, text in recipes.items():
            (stage / path.relative_to(folder.path)).write_text(text, encoding="utf-8")
        (stage / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _as_begun(record: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of its runs; where they are silent, an older version did not decide what is now decided."""
    runs: dict[str, Any] = record["runs"]
    if record.get(DECIDES):
        return runs
    return {name: BEFORE_DECIDING[bool(settings.get("pretrained", True))] | settings for name, settings in runs.items()}


def _different(begun: Mapping[str, Any], variant: Variant) -> list[str]:
    now = json.loads(json.dumps(variant.settings))
    return sorted(key for key in begun.keys() | now.keys() if begun.get(key) != now.get(key))


def _asked(evaluation: Evaluation | None) -> Evaluation | None:
    """What is measured, whoever takes part."""
    return None if evaluation is None else evaluation.model_copy(update={"variants": ()})


def _evaluation(stored: Any) -> Evaluation | None:
    """As it was written down, perhaps by a version that knew fewer keys."""
    try:
        return Evaluation.model_validate(stored)
    except ValidationError:
        return None


def _changes(record: Mapping[str, Any], study: Definition) -> list[str]:
    before = {name for name in record["runs"] if name in _runs_of(record)}
    now = {f"{variant.name}-{seed}" for variant in study.variants for seed in study.seeds}
    sentences = []
    if added := sorted(now - before):
        sentences.append(f"New since the folder was begun: {listing(added)}.")
    if gone := sorted(before - now):
        sentences.append(f"No longer in the study, left in place: {listing(gone)}.")
    return sentences


def _runs_of(record: Mapping[str, Any]) -> set[str]:
    study = record.get("study", {})
    return {f"{variant['name']}-{seed}" for variant in study.get("variants", ()) for seed in study.get("seeds", ())}


def size_of(folder: Path) -> int:
    """How many bytes the files below a folder have."""
    return sum(os.path.getsize(path) for path in folder.rglob("*") if path.is_file())
