"""What a study would do: its runs, and how long and how large they are, by finished ones or by a short measured one."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
from surgeon.studies.folder import StudyFolder, size_of
from surgeon.studies.table import run_of
from surgeon.studies.tasks import RESULT, Task, tasks_of
from surgeon.training.defaults import default_epochs
from surgeon.training.recipe import check_recipe
from surgeon.training.splits import open_splits

STEPS, BATCH = 4, 64
SECONDS_OF_START = 4.0
"""What an evaluation takes besides its images: a process, torch, the network."""


@dataclass(frozen=True)
class Cost:
    """Of one run."""

    seconds: float
    bytes: int
    memory: int = 0


def plan_study(study: Definition, output: Path | None, jobs: int | None, say: Callable[[str], None]) -> StudyPlan:
    """Say what would run; finished runs in `output` tell how long it takes, else a short one of each variant does."""
    with tempfile.TemporaryDirectory() as elsewhere:
        folder = StudyFolder(output if output is not None else Path(elsewhere))
        tasks = tasks_of(study, folder)
        states = {task.name: run_of(task, folder).state for task in tasks}
        finished = [task for task in tasks if states[task.name] is RunState.FINISHED]
        missing = [task for task in tasks if states[task.name] is not RunState.FINISHED]
        costs, measured = _costs(study, folder, finished, missing, say)
    at_a_time = jobs or min(usable_cores(), max(1, len(missing)))
    total = math.fsum(costs[task.variant].seconds for task in missing)
    place = next(path for path in (folder.path, *folder.path.parents) if path.exists())
    return StudyPlan(
        name=study.name,
        runs=len(tasks),
        finished=len(finished),
        missing=tuple(
            PlannedRun(
                name=task.name,
                state=states[task.name],
                seconds=costs[task.variant].seconds,
                bytes=costs[task.variant].bytes,
            )
            for task in missing
        ),
        evaluations=sum(not step.is_done for task in missing for step in task.steps[1:]),
        jobs=at_a_time,
        seconds=total / at_a_time,
        bytes=sum(costs[task.variant].bytes for task in missing),
        free_bytes=shutil.disk_usage(place).free,
        memory_bytes=max((cost.memory for cost in costs.values()), default=0),
        measured=measured,
    )


def _costs(
    study: Definition, folder: StudyFolder, finished: list[Task], missing: list[Task], say: Callable[[str], None]
) -> tuple[dict[str, Cost], str]:
    found: dict[str, Cost] = {}
    for name in {task.variant for task in finished}:
        of_variant = [task for task in finished if task.variant == name]
        notes = [Notes.read(task.notes) for task in of_variant]
        found[name] = Cost(
            fmean(math.fsum(one.seconds.values()) for one in notes),
            max(size_of(folder.run(task.name)) + size_of(folder.evaluations(task.name)) for task in of_variant),
            max(one.peak_bytes for one in notes),
        )
    unknown = [one for one in study.variants if one.name not in found and one.name in {t.variant for t in missing}]
    if found and unknown:
        mean = Cost(fmean(one.seconds for one in found.values()), max(one.bytes for one in found.values()))
        return found | {one.name: mean for one in unknown}, "finished runs; variants without any: their mean"
    for variant in unknown:
        say(f"Measuring a few steps of {variant.name}…")
        steps = next(task for task in missing if task.variant == variant.name).steps
        found[variant.name] = _probe(variant, study, len(steps) - 1)
    return found, f"{STEPS} steps of each variant, with one thread" if unknown else "finished runs"


def _probe(variant: Variant, study: Definition, evaluations: int) -> Cost:
    """Train a few steps in a folder that is thrown away; everything that comes once is in it, epochs are multiplied."""
    recipe = check_recipe(variant.recipe, variant.name)
    images = open_splits(InferenceRequest(data=variant.data, skip_bad=study.skip_bad), recipe.train_images).train
    batch = min(recipe.batch_size or BATCH, len(images))
    epochs = recipe.epochs or default_epochs(len(images), variant.pretrained, recipe.snapshots)
    few = min(len(images), max(STEPS * batch, 2 * len(images.class_names)))
    short = {"epochs": 1, "snapshots": 1, "warmup_epochs": 0, "unmixed_epochs": 0, "train_images": few}
    with tempfile.TemporaryDirectory() as place:
        file, run, log = Path(place, "recipe.yaml"), Path(place, "run"), Path(place, "log")
        file.write_text(yaml.safe_dump({**variant.recipe, **short, "batch_size": batch}), encoding="utf-8")
        command = ["finetune", variant.model, "--data", variant.data, "--recipe", str(file), "-o", str(run)]
        command += ["--weights", variant.weights] if variant.weights is not None else []
        command += [] if variant.pretrained else ["--no-pretrained"]
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
        training = epochs * len(images) * epoch.seconds / max(few, 1)
        rest = whole - epoch.seconds
        size = size_of(run) + (size_of(run / "checkpoint") * recipe.snapshots if recipe.snapshots > 1 else 0)
    return Cost(rest + training + SECONDS_OF_START * evaluations, size)
