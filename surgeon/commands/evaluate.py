"""The `eval` command's whole operation: predict the images, measure, tell what views brought, and write a report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from surgeon import checkpoint
from surgeon.commands.storing import Decision, decide
from surgeon.core.atomic import staged
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.core.processes import Processes
from surgeon.data.images import ImageSet
from surgeon.data.loaders import Batch
from surgeon.measuring.choosing import images_to_choose_on
from surgeon.measuring.comparison import gain_of_temperature, gain_over
from surgeon.measuring.error_analysis import break_down
from surgeon.measuring.predicting import score
from surgeon.measuring.setup import Request, Task, prepare
from surgeon.metrics import Scores, intervals, metrics, summarise
from surgeon.models.history import TemperatureFitted
from surgeon.models.sources import LoadedModel
from surgeon.report.evaluation import evaluation_page, evaluation_picture
from surgeon.results import AgainstOneView, Evaluation
from surgeon.results.steps import figures_of, images_of
from surgeon.surgery.branches import prediction_by
from surgeon.surgery.temperature import set_temperature, temperature_of

RESULT, PICTURE, PAGE, CHECKPOINT = "result.json", "evaluation.png", "report.html", "checkpoint"

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the number of images done and the number of all."""


def run_evaluation(
    loaded: LoadedModel,
    request: Request,
    progress: Progress,
    *,
    save_logits: Path | None = None,
    output: Path | None = None,
    with_temperature: bool = False,
    force: bool = False,
    images: ImageSet | None = None,
) -> Evaluation:
    """Evaluate a network on a data set; with several views, also on one for comparison.

    A report is written to the folder `output`, and `with_temperature` a checkpoint beside it, which has the fitted
    one if its gain is beyond noise. It is fitted on the images that settings are chosen on, which the figures are of;
    where half of the images were held back from that, the gain is measured on those.
    """
    processes = Processes.launched()
    warnings: tuple[str, ...] = ()
    held_back: ImageSet | None = None
    if with_temperature and images is None:
        choosing = images_to_choose_on(request)
        images, warnings, held_back = choosing.images, choosing.warnings, choosing.held_back
    task = prepare(loaded, request, images)
    measured = _measure(task, processes, progress, keep_logits=save_logits is not None)
    one_view = _measure(task.with_one_view(), processes, progress) if task.views else None
    figures = summarise(measured.scores)

    checkpoint_folder = output / CHECKPOINT if output is not None and with_temperature else None
    temperature_gain, decision = None, Decision(False, "")
    if checkpoint_folder is not None:
        if figures.temperature is None:
            raise SurgeonError("The cross-entropy is infinite at every temperature, so there is none to store.")
        if held_back is None:
            temperature_gain = gain_of_temperature(measured.scores)
        else:
            others = _measure(replace(task, image_set=held_back), processes, progress)
            temperature_gain = gain_of_temperature(others.scores, fitted_on=measured.scores)
        decision = decide(f"A temperature of {figures.temperature:.4f}", temperature_gain, force=force)
    plan = getattr(loaded.model, "surgery", None)
    result = Evaluation(
        model=loaded.name,
        data=request.data,
        split=task.image_set.split,
        warnings=warnings,
        rewrites=plan.summary() if plan is not None else "",
        prediction_by=prediction_by(task.model),
        preprocessing=task.preprocessing,
        device=str(task.device),
        precision=task.precision,
        tta=request.tta,
        views=task.view_count,
        against_one_view=_against(one_view, measured) if one_view else None,
        metrics=figures,
        intervals=dict(intervals(measured.scores)),
        breakdown=break_down(measured.scores.images(), task.image_set, loaded.class_names) if output else None,
        bad_images=tuple(measured.bad),
        seconds=measured.seconds,
        images_per_second=len(measured.scores) / measured.seconds,
        logits_file=str(save_logits) if save_logits is not None else None,
        temperature_gain=temperature_gain,
        decision=decision.reason,
        checkpoint=str(checkpoint_folder) if checkpoint_folder is not None else None,
    )

    def write() -> None:
        if save_logits is not None:
            _write(measured.logits, save_logits)
        if checkpoint_folder is not None:
            _save(loaded, result, decision, checkpoint_folder)
        if output is not None:
            _report(result, output)

    processes.only_first(write)
    return result


def _report(result: Evaluation, folder: Path) -> None:
    with staged(folder, (PICTURE, PAGE, RESULT)) as stage:
        (stage / RESULT).write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
        evaluation_picture(result, stage / PICTURE)
        (stage / PAGE).write_text(evaluation_page(result), encoding="utf-8")


@dataclass
class _Measured:
    """What one process has seen, or all of them together. Logits are kept only if they are to be saved."""

    scores: Scores = field(default_factory=Scores)
    bad: list[str] = field(default_factory=list)
    logits: list[tuple[Tensor, Batch]] = field(default_factory=list)
    seconds: float = 0.0


def _measure(task: Task, processes: Processes, progress: Progress, keep_logits: bool = False) -> _Measured:
    start = time.perf_counter()
    together = _Measured()
    for share in processes.gather(lambda: _measure_share(task, processes, progress, keep_logits)):
        together.scores = together.scores.merge(share.scores)
        together.bad += share.bad
        together.logits += share.logits
    together.seconds = time.perf_counter() - start
    return together


def _measure_share(task: Task, processes: Processes, progress: Progress, keep_logits: bool) -> _Measured:
    """What falls to this process: every so-manieth batch, each the same as if one process did all."""
    loader = task.batches()
    loader = loader.only(loader.numbers[processes.rank :: processes.count])
    share = _Measured()
    done, all_images = 0, len(task.image_set)
    label = f"evaluating {task.view_count} views" if task.views else "evaluating"

    def watch(logits: Tensor, batch: Batch) -> None:
        nonlocal done
        done += len(batch.labels) * processes.count
        progress(label, min(done, all_images), all_images)
        if keep_logits:
            share.logits.append((logits, replace(batch, images=batch.images[:0])))

    share.scores = score(task.model, loader, task.manner, watch)
    share.bad = loader.bad
    return share


def _against(one_view: _Measured, measured: _Measured) -> AgainstOneView:
    names = ("accuracy", "cross-entropy", "scaled-cross-entropy")
    return AgainstOneView(
        metrics=summarise(one_view.scores),
        gains=tuple(gain_over(one_view.scores, measured.scores, metrics[name]) for name in names),
        times_the_time=measured.seconds / one_view.seconds,
    )


def _save(loaded: LoadedModel, result: Evaluation, decision: Decision, folder: Path) -> None:
    """The network as it is, with the fitted temperature on top of the one it may have if that was decided."""
    figures = result.metrics
    assert figures.temperature is not None
    if decision.stored:
        set_temperature(loaded.model, (temperature_of(loaded.model) or 1.0) * figures.temperature)
    fitted = TemperatureFitted(
        fitted_on=images_of(result.data, result.split, figures.images),
        temperature=figures.temperature,
        stored=decision.stored,
        forced=decision.forced,
        gain=result.temperature_gain,
        before=figures_of(figures),
        warnings=result.warnings,
    )
    checkpoint.save_checkpoint(loaded, folder, fitted, overwrite=True)


def _write(kept: list[tuple[Tensor, Batch]], path: Path) -> None:
    from safetensors.torch import save_file

    indices = torch.cat([torch.as_tensor(batch.indices) for _, batch in kept])
    order = indices.argsort()  # as in the data, however many processes have shared the work
    tensors = {
        "logits": torch.cat([logits for logits, _ in kept])[order],
        "labels": torch.cat([batch.labels for _, batch in kept])[order],
        "indices": indices[order],
    }
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        unfinished.touch()  # with the mode that files have here
        mode = unfinished.stat().st_mode
        save_file(tensors, unfinished)
        unfinished.chmod(mode)  # safetensors makes it private
        unfinished.replace(path)
    except Exception as error:
        unfinished.unlink(missing_ok=True)
        raise SurgeonError(f"Could not write {path}: {error}.", exit_code=ExitCode.FAILED) from error
