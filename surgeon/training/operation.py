"""The `finetune` command's whole operation: open, fit, train, choose settings, test once, write."""

from __future__ import annotations

from collections.abc import Callable

from surgeon.models.sources import LoadedModel
from surgeon.processes import Processes
from surgeon.results import FineTuning
from surgeon.training.finishing import Progress, finish
from surgeon.training.interruption import stopping_at_ctrl_c
from surgeon.training.loop import Watcher
from surgeon.training.request import RESULT, FinetuneRequest, check_run
from surgeon.training.run import Run
from surgeon.training.splits import open_splits
from surgeon.training.tracking import tracking


def run_finetuning(
    open_network: Callable[[], LoadedModel], request: FinetuneRequest, watcher: Watcher, progress: Progress
) -> FineTuning:
    """Train a network on a data set, choose its settings on validation images, and test it once."""
    processes = Processes.launched()
    check_run(request)
    if request.resume and (request.output / RESULT).is_file():
        return FineTuning.model_validate_json((request.output / RESULT).read_bytes())
    run = Run(request, processes, open_splits(request.task, request.recipe.train_images), open_network())
    trainer = run.trainer(watcher)
    processes.only_first(run.begin)
    if request.resume:
        trainer.resume()
    with stopping_at_ctrl_c() as stopped, tracking(trainer, request.track, request.recipe):
        trainer.should_stop = stopped.is_set
        trainer.fit()
    return finish(run, trainer, progress)
