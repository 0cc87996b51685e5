"""What has to be done: for each variant and seed a run, and then the evaluations of its networks, as commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from surgeon.studies.definition import SEED, TEST, Definition, Evaluation, Variant
from surgeon.studies.folder import StudyFolder
from surgeon.training.state import STATE

RESULT, LOGITS, CHECKPOINT, SNAPSHOTS = "result.json", "test-logits.safetensors", "checkpoint", "snapshots"


@dataclass(frozen=True)
class Step:
    """A command of surgeon; once its file is there, it is done."""

    what: str
    arguments: tuple[str, ...]
    file: Path
    run: Path | None = None
    """The folder of the run, if this is one."""
    evaluation: str = ""
    """The evaluation that it belongs to, if this is no run."""

    @property
    def is_done(self) -> bool:
        return self.file.is_file()

    def command(self, threads: int) -> list[str]:
        """With what depends on how far it has come, and on how much of the machine it may use."""
        if self.run is None:
            return [*self.arguments, *([] if self.what == "convert" else ["--workers", str(threads)])]
        # A process of its own to decode pays only where it has a core of its own.
        workers = ["--workers", str(threads if threads > 1 else 0)]
        if (self.run / STATE).is_file():
            return [*self.arguments, *workers, "--resume"]
        return [*self.arguments, *workers, *(["--overwrite"] if self.run.exists() else [])]


@dataclass(frozen=True)
class Task:
    """A run and all that follows it, one after the other."""

    name: str
    variant: str
    seed: int
    steps: tuple[Step, ...]
    log: Path
    notes: Path
    lock: Path

    @property
    def is_done(self) -> bool:
        return all(step.is_done for step in self.steps)


def tasks_of(study: Definition, folder: StudyFolder) -> list[Task]:
    """All of them, seed by seed, so that an interrupted study has compared all variants with some seeds."""
    return [task_of(study, folder, variant, seed) for seed in study.seeds for variant in study.variants]


def task_of(study: Definition, folder: StudyFolder, variant: Variant, seed: int) -> Task:
    name = f"{variant.name}-{seed}"
    steps = (_training(study, folder, variant, seed), *_evaluating(study, folder, variant, name))
    return Task(name, variant.name, seed, steps, folder.log(name), folder.notes(name), folder.lock(name))


def _training(study: Definition, folder: StudyFolder, variant: Variant, seed: int) -> Step:
    run = folder.run(f"{variant.name}-{seed}")
    arguments = ["finetune", *variant.training, "--recipe", str(folder.recipe(variant.name))]
    arguments += ["--seed", str(seed)] if variant.varies == SEED else ["--set", f"{variant.varies}={seed}"]
    arguments += ["-o", str(run)]
    arguments += ["--skip-bad"] if study.skip_bad else []
    return Step("finetune", tuple(arguments), run / RESULT, run)


def _evaluating(study: Definition, folder: StudyFolder, variant: Variant, run: str) -> Iterator[Step]:
    for name, evaluation in study.evaluations.items():
        if not study.applies(name, variant) or evaluation.is_own_test or evaluation.is_own_validation:
            continue
        for place, network in networks(folder, variant, run, evaluation).items():
            file = logits_file(folder, run, name, place)
            if evaluation.alpha is not None:
                converted = file.with_suffix("")
                rewrite = f"example-weighted:alpha={evaluation.alpha:g}"
                arguments = ("convert", str(network), "--bn", rewrite, "-o", str(converted), "--overwrite")
                yield Step("convert", arguments, converted / "surgery.json", evaluation=name)
                network = converted
            what = "eval" if evaluation.recalibrate is None else "recalibrate"
            measuring = _measuring(study, variant, evaluation, network, file)
            yield Step(f"{what} {name}", measuring, file, evaluation=name)


def networks(folder: StudyFolder, variant: Variant, run: str, evaluation: Evaluation) -> dict[str, Path]:
    """The checkpoints of a run that take part in an evaluation, by a name for files."""
    if evaluation.ensemble != "snapshots":
        return {CHECKPOINT: folder.run(run) / CHECKPOINT}
    numbers = map(str, range(1, variant.snapshots + 1))
    return {f"snapshot-{number}": folder.run(run) / SNAPSHOTS / number for number in numbers}


def logits_file(folder: StudyFolder, run: str, evaluation: str, network: str) -> Path:
    return folder.evaluations(run) / f"{evaluation}--{network}.safetensors"


def _measuring(
    study: Definition, variant: Variant, evaluation: Evaluation, network: Path, file: Path
) -> tuple[str, ...]:
    """The command that leaves the logits of a network."""
    data, split = evaluation.data or variant.data, evaluation.split
    if split is None and evaluation.data is None:
        split = TEST
    if evaluation.recalibrate is None:
        arguments = ["eval", str(network)]
    else:
        arguments = ["recalibrate", str(network), "--prior", f"{evaluation.recalibrate}", "--confirm"]
    arguments += ["--data", data, "--save-logits", str(file)]
    given = {
        "--split": split,
        "--limit": evaluation.limit,
        "--tta": evaluation.tta,
        "--lambda": evaluation.branch_share,
    }
    for option, value in given.items():
        arguments += [option, str(value)] if value is not None else []
    for option, values in (("--where", evaluation.where), ("--under", evaluation.under)):
        arguments += [part for value in values for part in (option, value)]
    arguments += ["--save-features"] if evaluation.features else []
    return (*arguments, *(["--skip-bad"] if study.skip_bad else []))
