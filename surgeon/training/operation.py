"""The `finetune` command's whole operation: open, fit, train, choose settings, test once, write."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from surgeon import checkpoint
from surgeon.atomic import check_destination, staged
from surgeon.augment.pipeline import Augmentation, build
from surgeon.compute import Precision, pick_device, usable_precision
from surgeon.conversion import state_sha256
from surgeon.data.loaders import batches, usable_cores
from surgeon.errors import ExitCode, SurgeonError, count, listing
from surgeon.evaluation import run_evaluation
from surgeon.metrics import Metrics, Scores, summarise
from surgeon.models.sources import LoadedModel
from surgeon.processes import Processes
from surgeon.report.training import training_page, training_picture
from surgeon.results import FineTuning, Sweep
from surgeon.scoring import Manner, score
from surgeon.surgery.apply import surgical_layers
from surgeon.sweeping.journal import OtherSweepError
from surgeon.sweeping.operation import SweepRequest, run_sweep
from surgeon.sweeping.values import parse_values
from surgeon.task import SMALL_IMAGE, Request
from surgeon.training import network
from surgeon.training.loop import Trainer, Watcher
from surgeon.training.objective import Objective
from surgeon.training.recipe import Recipe, as_yaml, check_recipe, read_yaml
from surgeon.training.schedule import Schedule, make_optimizer
from surgeon.training.splits import Splits, check_training_images, open_splits
from surgeon.training.state import STATE

RECIPE, RUN, RESULT, LOGITS = "recipe.yaml", "run.json", "result.json", "test-logits.safetensors"
PICTURE, PAGE = "curves.png", "report.html"
CHECKPOINT, SNAPSHOTS, SWEEPS = "checkpoint", "snapshots", {"alpha": "sweep-alpha", "lambda": "sweep-lambda"}
DEFAULT_BATCH = 64
LAMBDAS = "0:1:11"
CROP = "standard"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class FinetuneRequest:
    """Which images, how to train, and where the run lives."""

    task: Request
    recipe: Recipe
    output: Path
    resume: bool = False
    overwrite: bool = False
    track: str | None = None


def run_finetuning(
    open_network: Callable[[], LoadedModel], request: FinetuneRequest, watcher: Watcher, progress: Progress
) -> FineTuning:
    """Train a network on a data set, choose its settings on validation images, and test it once."""
    processes = Processes.launched()
    check_run_folder(request)
    check_tracker(request.track)
    if request.resume:
        check_same_recipe(request)
    if request.resume and (request.output / RESULT).is_file():
        return FineTuning.model_validate_json((request.output / RESULT).read_bytes())
    run = _Run(request, processes, open_splits(request.task, request.recipe.train_images), open_network())
    trainer = run.trainer(watcher)
    processes.only_first(run.begin)
    if request.resume:
        trainer.resume()
    with _stopping_at_ctrl_c() as stopped, _tracking(trainer, request):
        trainer.should_stop = stopped.is_set
        trainer.fit()
    return run.finish(trainer, progress)


def check_run_folder(request: FinetuneRequest) -> None:
    """Before any work is done: a new run needs an empty folder, a resumed one its own."""
    folder = request.output
    check_tracker(request.track)
    if not request.resume:
        check_destination(folder, request.overwrite)
    elif not (folder / RUN).is_file():
        raise SurgeonError(f"There is no run in {folder} to resume.", "Leave --resume out to begin one.")


def check_same_recipe(request: FinetuneRequest) -> None:
    """Refuse to go on with other settings, before anything is opened."""
    path = request.output / RECIPE
    begun_with = check_recipe(read_yaml(path), str(path))
    refuse_other_run(
        request.output, [key for key in Recipe.model_fields if getattr(begun_with, key) != getattr(request.recipe, key)]
    )


def refuse_other_run(folder: Path, different: Sequence[str]) -> None:
    if different:
        raise SurgeonError(
            f"The run in {folder} was begun with another {listing(different)}.",
            "Repeat its command with --resume, or begin another run in another folder.",
        )


def check_tracker(name: str | None) -> None:
    """Refuse a tool that Accelerate does not know, or that is not installed: it would leave it out silently."""
    if name is None:
        return
    from accelerate.tracking import get_available_trackers
    from accelerate.utils import LoggerType

    known = [kind for kind in LoggerType.list() if kind != "all"]
    if name not in known:
        raise SurgeonError(f"--track cannot be {name!r}.", f"Choose {listing(known, 'or', limit=len(known))}.")
    if name not in get_available_trackers():
        raise SurgeonError(f"{name!r} is not installed.", f"Run pip install {name}, or leave --track out.")


class _Run:
    """A network and images that fit each other, and the folder in which the run lives."""

    def __init__(self, request: FinetuneRequest, processes: Processes, splits: Splits, loaded: LoadedModel) -> None:
        self.request, self.recipe, self.folder = request, request.recipe, request.output
        self.processes = processes
        self.splits = splits
        self.device = pick_device(request.task.device)
        self.precision = usable_precision(Precision(self.recipe.precision), self.device)
        self.batch_size = self.recipe.batch_size or min(DEFAULT_BATCH, len(splits.train))
        check_training_images(splits.train, self.batch_size, request.task.limit)
        _check_division(self.batch_size, processes.count, self.recipe)
        self.name, self.base = loaded.name, loaded.origin.weights
        self.base_sha256 = state_sha256(loaded.model)
        self.loaded = network.fit_to_classes(loaded, len(splits.train.class_names), self.recipe.seed)
        self.preprocessing = replace(request.task.images, input_size=self.recipe.input_size).applied_to(
            loaded.origin.preprocessing, loaded.name
        )
        names = splits.train.class_names if splits.train.names_known else None
        network.with_images(self.loaded, self.preprocessing, names)
        if self.recipe.input_size is not None:
            network.check_input_size(self.loaded)
        self.rewrites = network.convert(self.loaded, self.recipe)
        _check_groups(self.loaded.model, self.batch_size // processes.count // self.recipe.accumulate)
        network.choose_what_learns(self.loaded.model, self.recipe)

    # Beginning ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Write down what this run is, or make sure that it is the one to resume."""
        identity = {
            "model": self.name,
            "weights": self.base_sha256,
            "data": [self.splits.train.fingerprint, self.splits.validation.fingerprint],
            "batch_size": self.batch_size,
            "number of processes": self.processes.count,
        }
        if self.request.resume:
            self._check_same_run(identity)
            return
        for name in (STATE, RESULT):
            (self.folder / name).unlink(missing_ok=True)
        for name in (CHECKPOINT, SNAPSHOTS, *SWEEPS.values()):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        with staged(self.folder, (RECIPE, RUN)) as stage:
            (stage / RECIPE).write_text(as_yaml(self.recipe), encoding="utf-8")
            (stage / RUN).write_text(json.dumps(identity, indent=2) + "\n", encoding="utf-8")

    def _check_same_run(self, identity: dict[str, Any]) -> None:
        stored = json.loads((self.folder / RUN).read_text(encoding="utf-8"))
        refuse_other_run(self.folder, [key for key in identity if stored.get(key) != identity[key]])

    def trainer(self, watcher: Watcher) -> Trainer:
        recipe, model = self.recipe, self.loaded.model.to(self.device)
        decay_norms = recipe.norm_weight_decay
        if decay_norms is None:
            decay_norms = network.has_residual_path(self.loaded)
        memory_format = _memory_format(model)
        model.to(memory_format=memory_format)
        optimizer = make_optimizer(network.parameter_groups(model, recipe, decay_norms), recipe)
        steps = len(self.splits.train) // self.batch_size * recipe.epochs
        return Trainer(
            model=model,
            objective=Objective(
                model, self._augmentations(), self._classes, recipe.label_smoothing, recipe.consistency
            ),
            optimizer=optimizer,
            schedule=Schedule(optimizer, recipe, steps),
            accelerator=_accelerator(self.device, self.precision, self.request),
            processes=self.processes,
            recipe=recipe,
            train=self.splits.train,
            preprocessing=self.preprocessing,
            batch_size=self.batch_size,
            workers=self._workers,
            skip_bad=self.request.task.skip_bad,
            folder=self.folder,
            validate=self._validate,
            snapshot=self._snapshot,
            watcher=watcher,
            should_stop=lambda: False,
            memory_format=memory_format,
            ema=_average_of(model, recipe),
        )

    @property
    def _classes(self) -> int:
        return len(self.splits.train.class_names)

    @property
    def _workers(self) -> int:
        wanted = self.request.task.workers
        return wanted if wanted is not None else max(1, usable_cores() // self.processes.count)

    def _augmentations(self) -> tuple[Augmentation, ...]:
        """One for each copy that a step takes of an image."""
        given = build(self.recipe.augment, self.preprocessing, CROP)
        if self.recipe.consistency:
            if self._is_split or given.mixing:
                other = "a split network takes two" if self._is_split else "each would be mixed with another image"
                raise SurgeonError(
                    f"The consistency loss compares three copies of an image, but {other}.", "Set consistency=0."
                )
            return replace(given, image=()), given, given
        if self._is_split:
            return given, build(self.recipe.strong, self.preprocessing, CROP)
        return (given,)

    @property
    def _is_split(self) -> bool:
        return any(layer.aux is not None for layer in surgical_layers(self.loaded.model).values())

    # Measuring and ending -----------------------------------------------------------------------

    def _validate(self, model: nn.Module) -> Metrics:
        images = self.splits.validation
        loader = batches(
            images, self.preprocessing, self._evaluation_batch, self.request.task.workers, self.request.task.skip_bad
        )
        loader = loader.only(loader.numbers[self.processes.rank :: self.processes.count])
        manner = Manner(self.device, self.precision)
        scores = Scores()
        for share in self.processes.gather(lambda: score(model, loader, manner)):
            scores = scores.merge(share)
        return summarise(scores)

    @property
    def _evaluation_batch(self) -> int:
        return 128 if self.preprocessing.input_size[-1] <= SMALL_IMAGE else 32

    def _snapshot(self, model: nn.Module, number: int) -> None:
        checkpoint.save(
            model, self.folder / SNAPSHOTS / f"{number}", origin=self.loaded.origin, overwrite=True,
            findings=(f"Snapshot {number} of {self.recipe.snapshots}, fine-tuned on {self.request.task.data}.",),
        )  # fmt: skip

    def finish(self, trainer: Trainer, progress: Progress) -> FineTuning:
        """Choose settings on validation images, test once, and write everything."""
        self.loaded.model = trainer.outcome.eval()
        epochs = trainer.epochs
        validation = epochs[-1].validation
        assert validation is not None
        sentences = self._choose_settings(progress)
        test = self._test(progress)
        findings = [f"Fine-tuned on {self.request.task.data}: {count(len(self.splits.train), 'image')}.", *sentences]
        if test is not None:
            findings.append(f"Test: {test.accuracy:.2%} of {count(test.images, 'image')}.")
        self.processes.only_first(
            lambda: checkpoint.save(
                self.loaded.model, self.folder / CHECKPOINT, origin=self.loaded.origin, findings=findings,
                overwrite=True,
            )
        )  # fmt: skip
        parameters = list(self.loaded.model.parameters())
        members = range(1, self.recipe.snapshots + 1) if self.recipe.snapshots > 1 else ()
        result = FineTuning(
            model=self.name,
            rewrites=self.rewrites,
            data=self.request.task.data,
            classes=self._classes,
            train_images=len(self.splits.train),
            validation_images=len(self.splits.validation),
            test_images=len(self.splits.test) if self.splits.test is not None else 0,
            held_back=self.splits.held_back,
            preprocessing=self.preprocessing,
            recipe=self.recipe.model_dump(mode="json"),
            batch_size=self.batch_size,
            trained_parameters=sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
            parameters=sum(p.numel() for p in parameters),
            epochs=tuple(epochs),
            validation=validation,
            settings=tuple(sentences),
            test=test,
            tta=self.recipe.tta,
            snapshots=tuple(str(self.folder / SNAPSHOTS / f"{number}") for number in members),
            device=str(self.device),
            seconds=trainer.seconds,
            checkpoint=str(self.folder / CHECKPOINT),
        )
        self.processes.only_first(lambda: write_report(result, self.folder))
        return result

    def _choose_settings(self, progress: Progress) -> list[str]:
        """The best alpha, and for a split network the best lambda, on the validation images."""
        sentences: list[str] = []
        if self.recipe.sweep is None:
            return sentences
        values = {"alpha": parse_values(self.recipe.sweep, "sweep")}
        if self._is_split:
            values["lambda"] = parse_values(LAMBDAS, "lambda")
        for axis, of_axis in values.items():
            sweep = SweepRequest(
                task=self.request.task,
                values=of_axis,
                axis=axis,
                metric=self.recipe.sweep_metric,
                output=self.folder / SWEEPS[axis],
            )
            try:
                found = self._sweep(sweep, progress)
            except SurgeonError as error:
                if error.exit_code is not ExitCode.USAGE:
                    raise
                sentences.append(f"{axis} was not swept: {error.message}")  # this network cannot take one
            else:
                sentences += [f"On the validation images, {axis} = {found.chosen:g} is best.", *found.summary]
        return sentences

    def _sweep(self, request: SweepRequest, progress: Progress) -> Sweep:
        def tell(phase: str, done: int, planned: int, _: object) -> None:
            progress(f"{request.axis}: {phase}", done, planned)

        try:
            return run_sweep(self.loaded, request, tell, images=self.splits.validation)
        except OtherSweepError:  # an interrupted one, before --skip-bad or another --device was chosen
            return run_sweep(self.loaded, replace(request, overwrite=True), tell, images=self.splits.validation)

    def _test(self, progress: Progress) -> Metrics | None:
        if self.splits.test is None:
            return None
        request = replace(self.request.task, split=self.splits.test.split, tta=self.recipe.tta)
        evaluation = run_evaluation(
            self.loaded, request, progress, save_logits=self.folder / LOGITS, images=self.splits.test
        )
        return evaluation.metrics


def write_report(result: FineTuning, folder: Path) -> None:
    """The result as JSON, as a picture and as a page, all of them or none."""
    with staged(folder, (PICTURE, PAGE, RESULT)) as stage:
        (stage / RESULT).write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
        training_picture(result, stage / PICTURE)
        (stage / PAGE).write_text(training_page(result), encoding="utf-8")


def _check_division(batch_size: int, processes: int, recipe: Recipe) -> None:
    parts = processes * recipe.accumulate
    if batch_size % parts:
        raise SurgeonError(
            f"A batch of {batch_size} cannot be cut into {parts} equal parts ({processes} x {recipe.accumulate}).",
            f"Choose a batch size that is a multiple of {parts}.",
        )
    if batch_size // parts < 2:
        raise SurgeonError(f"A batch of {batch_size} leaves one image for each of {parts} parts.", "Use more images.")


def _check_groups(model: nn.Module, examples: int) -> None:
    """A ghost group larger than what a process sees at once would silently be the whole batch."""
    for name, layer in surgical_layers(model).items():
        size = getattr(layer.rewrites.get("ghost"), "size", 0)
        if size > examples:
            raise SurgeonError(
                f"Ghost groups of {size} are larger than the {count(examples, 'image')} that {name} sees at once.",
                f"Use --bn ghost:size={examples} or less, or larger batches.",
            )


def _memory_format(model: nn.Module) -> torch.memory_format:
    """Channels last is faster, except for ghost groups, whose kernel takes the other order; depthwise layers do not."""
    ghost = any("ghost" in layer.rewrites for layer in surgical_layers(model).values())
    depthwise = any(isinstance(module, nn.Conv2d) and module.groups > 1 for module in model.modules())
    return torch.contiguous_format if ghost and not depthwise else torch.channels_last


def _average_of(model: nn.Module, recipe: Recipe) -> Any:
    if recipe.ema is None:
        return None
    from timm.utils.model_ema import ModelEmaV3

    return ModelEmaV3(model, decay=recipe.ema, use_warmup=True)


def check_tracker(name: str | None) -> None:
    """Refuse a tracker that Accelerate does not know or that is not installed; Accelerate itself says nothing."""
    if name is None:
        return
    from accelerate.tracking import get_available_trackers
    from accelerate.utils import LoggerType

    known = sorted(each.value for each in LoggerType if each is not LoggerType.ALL)
    if name not in known:
        raise SurgeonError(f"--track cannot be {name!r}.", f"Accelerate knows {listing(known, limit=len(known))}.")
    if name not in {str(getattr(each, "value", each)) for each in get_available_trackers()}:
        raise SurgeonError(f"{name} is not installed, so it cannot track the run.", f"Run: pip install {name}.")


def _accelerator(device: torch.device, precision: Precision, request: FinetuneRequest) -> Any:
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs

    short = {Precision.FLOAT32: "no", Precision.BFLOAT16: "bf16", Precision.FLOAT16: "fp16"}[precision]
    return Accelerator(
        cpu=device.type == "cpu",
        mixed_precision=short,
        log_with=request.track,
        project_dir=str(request.output),
        # Every process keeps the statistics of its own images; they are averaged at the end of an epoch.
        kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
    )


@contextmanager
def _tracking(trainer: Trainer, request: FinetuneRequest) -> Iterator[None]:
    """Send every epoch to the tracker that was asked for."""
    if request.track is None:
        yield
        return
    accelerator, told = trainer.accelerator, trainer.watcher
    accelerator.init_trackers("surgeon", config={k: str(v) for k, v in request.recipe.model_dump().items()})
    trainer.watcher = Tracked(told, accelerator)
    try:
        yield
    finally:
        accelerator.end_training()


@dataclass
class Tracked:
    """Passes on what it is told, and logs the epochs."""

    watcher: Watcher
    accelerator: Any
    logged: list[int] = field(default_factory=list)

    def step(self, *args: Any) -> None:
        self.watcher.step(*args)

    def epoch(self, epoch: Any) -> None:
        self.watcher.epoch(epoch)
        values = {"train/loss": epoch.loss, "train/accuracy": epoch.accuracy, "learning_rate": epoch.learning_rate}
        if epoch.validation is not None:
            values |= {
                "validation/accuracy": epoch.validation.accuracy,
                "validation/cross_entropy": epoch.validation.cross_entropy,
            }
        self.accelerator.log(values, step=epoch.number)


@contextmanager
def _stopping_at_ctrl_c() -> Iterator[threading.Event]:
    """Ctrl-C ends training after the step; pressed again, at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:  # noqa: ARG001
        stopped.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
