"""The `finetune` command's whole operation: open, fit, train, choose settings, test once, write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from surgeon.commands.finetune.finishing import finish
from surgeon.commands.finetune.request import FinetuneRequest, check_run
from surgeon.commands.finetune.run import Run
from surgeon.core.errors import Interrupted, SurgeonError
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.core.reading import read_bounded
from surgeon.models.origin import LoadedModel
from surgeon.report.folder import RESULT
from surgeon.results import FineTuning
from surgeon.training.interruption import stopping_at_ctrl_c
from surgeon.training.loop import Watcher
from surgeon.training.splits import open_splits
from surgeon.training.state import STATE
from surgeon.training.tracking import tracking
from surgeon.training.unlabelled import fitting_unlabelled, open_unlabelled

MOST_RESULT_BYTES = 1 << 28


def run_finetuning(
    open_network: Callable[[], LoadedModel], request: FinetuneRequest, watcher: Watcher, progress: Progress
) -> FineTuning:
    """Train a network on a data set, choose its settings on validation images, and test it once."""
    run = plan_run(open_network, request)
    processes = run.processes
    if request.resume:
        processes.only_first(run.check_same)
        if (run.folder / RESULT).is_file():
            return _finished(run.folder / RESULT)
    trainer = run.trainer(watcher)
    if request.resume:
        trainer.resume()
    else:
        before = run.validate(run.loaded.model) if run.knows_classes else None
        processes.only_first(lambda: run.begin(before))
    watcher.begin(run.recipe, run.decided)
    with _stopping_well(run):
        with stopping_at_ctrl_c() as stopped, tracking(trainer, request.track, run.recipe):
            trainer.should_stop = stopped.is_set
            trainer.fit()
        return finish(run, trainer, progress)


def plan_run(open_network: Callable[[], LoadedModel], request: FinetuneRequest) -> Run:
    """A network and images that fit each other and the recipe; nothing is written yet."""
    request = replace(request, recipe=fitting_unlabelled(request.recipe, request.unlabelled))
    check_run(request)
    splits = open_splits(request.inference, request.recipe.train_images)
    unlabelled = None
    if request.unlabelled is not None:
        unlabelled = open_unlabelled(request.unlabelled, request.inference, splits, request.recipe)
    return Run(request, Processes.launched(), splits, open_network(), unlabelled)


def _finished(path: Path) -> FineTuning:
    """The result of a run that has come to its end."""
    try:
        return FineTuning.model_validate_json(read_bounded(path, "result of a run", MOST_RESULT_BYTES))
    except ValidationError as error:
        raise SurgeonError(
            f"{path} is not the result of a run ({error.error_count()} problems).",
            "Remove it to finish the run once more.",
        ) from None


@contextmanager
def _stopping_well(run: Run) -> Iterator[None]:
    """A run that fails before it has a state leaves nothing; one that is interrupted says how to go on."""
    try:
        yield
    except SurgeonError:
        if run.processes.rank == 0:
            run.withdraw()
        raise
    except KeyboardInterrupt:
        if not (run.folder / STATE).is_file():
            raise
        raise Interrupted(f"{run.folder} has the state of the run", "--resume") from None
