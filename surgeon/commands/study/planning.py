"""What a study would do: its runs, and how long and how large they are, by finished ones or by a short measured one."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import yaml

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.data.loaders import usable_cores
from surgeon.measuring.preparation import InferenceRequest
from surgeon.results import FineTuning, PlannedRun, RunState, StudyPlan
from surgeon.studies.definition import Definition, Variant
from surgeon.studies.execution import Notes, error_in
from surgeon.studies.folder import StudyFolder, changed_evaluations, refuse_other_settings, size_of
from surgeon.studies.table import run_of
from surgeon.studies.tasks import RESULT, Step, Task, tasks_of
from surgeon.training.defaults import default_epochs
from surgeon.training.recipe import check_recipe
from surgeon.training.splits import open_splits
from surgeon.training.unlabelled import open_unlabelled

STEPS, BATCH = 4, 64
SECONDS_OF_START = 4.0
"""What an evaluation takes besides its images: a process, torch, the network."""


@dataclass(frozen=True)
class Cost:
    """Of one run."""

    training: float
    evaluation: float
    """Seconds of each process that evaluates."""
    bytes: int
    memory: int = 0

    def seconds(self, missing: Sequence[Step]) -> float:
        """Of steps that are missing."""
        return math.fsum(self.evaluation if step.run is None else self.training for step in missing)


def plan_study(study: Definition, output: Path | None, jobs: int | None, say: Callable[[str], None]) -> StudyPlan:
    """Say what would run; finished runs in `output` tell how long it takes, else a short one of each variant does."""
    with tempfile.TemporaryDirectory() as elsewhere:
        folder = StudyFolder(output if output is not None else Path(elsewhere))
        refuse_other_settings(folder, study)
        again = changed_evaluations(folder.read_record(), study)
        tasks = tasks_of(study, folder)
        steps = {task.name: [one for one in task.steps if not one.is_done or one.evaluation in again] for task in tasks}
        missing = [task for task in tasks if steps[task.name]]
        trained = [task for task in tasks if task.steps[0].is_done]
        costs, measured = _costs(study, folder, trained, missing, say)
        planned = tuple(
            PlannedRun(
                name=task.name,
                state=RunState.UNFINISHED if task.is_done else run_of(task, folder).state,
                seconds=costs[task.variant].seconds(steps[task.name]),
                bytes=max(0, costs[task.variant].bytes - _size(folder, task)),
            )
            for task in missing
        )
    at_a_time = jobs or min(usable_cores(), max(1, len(missing)))
    place = next(path for path in (folder.path, *folder.path.parents) if path.exists())
    return StudyPlan(
        name=study.name,
        runs=len(tasks),
        finished=len(tasks) - len(missing),
        missing=planned,
        evaluations=sum(step.run is None for of_task in steps.values() for step in of_task),
        jobs=at_a_time,
        seconds=math.fsum(run.seconds for run in planned) / at_a_time,
        bytes=sum(run.bytes for run in planned),
        free_bytes=shutil.disk_usage(place).free,
        memory_bytes=max((cost.memory for cost in costs.values()), default=0),
        measured=measured,
    )


def _size(folder: StudyFolder, task: Task) -> int:
    return size_of(folder.run(task.name)) + size_of(folder.evaluations(task.name))


def _costs(
    study: Definition, folder: StudyFolder, trained: list[Task], missing: list[Task], say: Callable[[str], None]
) -> tuple[dict[str, Cost], str]:
    found: dict[str, Cost] = {}
    for name in {task.variant for task in trained}:
        of_variant = [task for task in trained if task.variant == name]
        notes = [Notes.read(task.notes) for task in of_variant]
        training = [one.seconds.get(task.steps[0].what, 0.0) for one, task in zip(notes, of_variant, strict=True)]
        rest = math.fsum(math.fsum(one.seconds.values()) for one in notes) - math.fsum(training)
        evaluated = sum(step.is_done for task in of_variant for step in task.steps[1:])
        found[name] = Cost(
            fmean(training),
            rest / evaluated if evaluated else SECONDS_OF_START,
            max(_size(folder, task) for task in of_variant),
            max(one.peak_bytes for one in notes),
        )
    unknown = [one for one in study.variants if one.name not in found and one.name in {t.variant for t in missing}]
    if found and unknown:
        mean = Cost(
            fmean(one.training for one in found.values()),
            fmean(one.evaluation for one in found.values()),
            max(one.bytes for one in found.values()),
        )
        return found | {one.name: mean for one in unknown}, "finished runs; variants without any: their mean"
    for variant in unknown:
        say(f"Measuring a few steps of {variant.name}…")
        found[variant.name] = _probe(variant, study)
    return found, f"{STEPS} steps of each variant, with one thread" if unknown else "finished runs"


def _probe(variant: Variant, study: Definition) -> Cost:
    """Train a few steps in a folder that is thrown away; everything that comes once is in it, epochs are multiplied."""
    recipe = check_recipe(variant.recipe, variant.name)
    request = InferenceRequest(data=variant.data, skip_bad=study.skip_bad)
    splits = open_splits(request, recipe.train_images)
    images = splits.train
    batch = min(recipe.batch_size or BATCH, len(images))
    epochs = recipe.epochs or default_epochs(len(images), variant.pretrained, recipe.snapshots)
    few = min(len(images), max(STEPS * batch, 2 * len(images.class_names)))
    short = {"epochs": 1, "snapshots": 1, "warmup_epochs": 0, "unmixed_epochs": 0, "train_images": few}
    short |= {"unlabelled_images": STEPS * batch * recipe.unlabelled_ratio} if variant.unlabelled is not None else {}
    with tempfile.TemporaryDirectory() as place:
        file, run, log = Path(place, "recipe.yaml"), Path(place, "run"), Path(place, "log")
        file.write_text(yaml.safe_dump({**variant.recipe, **short, "batch_size": batch}), encoding="utf-8")
        command = ["finetune", *variant.training, "--recipe", str(file), "-o", str(run)]
        command += ["--skip-bad"] if study.skip_bad else []
        begun = time.monotonic()
        with log.open("wb") as said:
            finished = subprocess.run(
                [sys.executable, "-m", "surgeon", *command, "--workers", "0"],
                stdout=subprocess.DEVNULL, stderr=said, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        whole = time.monotonic() - begun
        if finished.returncode:
            raise SurgeonError(
                f"A few steps of {variant.name} failed: {error_in(log).rstrip('.')}.", exit_code=ExitCode.FAILED
            )
        epoch = FineTuning.model_validate_json((run / RESULT).read_bytes()).epochs[0]
        passes = len(images) / max(few, 1)
        if variant.unlabelled is not None:  # an epoch is a pass over these, if that is longer
            unlabelled = open_unlabelled(variant.unlabelled, request, splits, recipe)
            at_once = batch * recipe.unlabelled_ratio
            passes = max(len(images) // batch, len(unlabelled.images) // at_once) / max(1, few // batch, STEPS)
        training = epochs * passes * epoch.seconds
        rest = whole - epoch.seconds
        size = size_of(run) + (size_of(run / "checkpoint") * recipe.snapshots if recipe.snapshots > 1 else 0)
    return Cost(rest + training, SECONDS_OF_START, size)
