"""The `sweep` command's whole operation: open, compete, learn, confirm, report, apply."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surgeon import checkpoint
from surgeon.commands.storing import decide
from surgeon.commands.sweep import under
from surgeon.commands.sweep.investigation import CHOOSING, CONFIRMING, Investigation, Question
from surgeon.commands.sweep.settings import Swept
from surgeon.commands.sweep.sweepable import axes_but_the_prior, combined, make_sweepable
from surgeon.commands.sweep.under import parted
from surgeon.conditions.base import ask
from surgeon.core.atomic import check_destination
from surgeon.core.errors import SurgeonError, count
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.data.images import ImageSet
from surgeon.data.stratified import halves
from surgeon.measuring.axes import AlphaAxis, kept_if_it_fails
from surgeon.measuring.choosing import Choosing, images_to_choose_on
from surgeon.measuring.journal import Journal, going_on
from surgeon.measuring.preparation import InferenceRequest, PreparedNetwork, open_images, outputs_for_journal, prepare
from surgeon.measuring.prior_axis import PriorAxis
from surgeon.measuring.runner import Runner
from surgeon.measuring.under import RunnerUnder
from surgeon.metrics import metrics
from surgeon.models.history import TemperatureFitted
from surgeon.models.origin import LoadedModel
from surgeon.norms import norms
from surgeon.report.folder import write_report
from surgeon.report.sweep import sweep_page, sweep_picture
from surgeon.results import Learning, Method, Sweep
from surgeon.results.steps import figures_of, images_of, swept
from surgeon.surgery.apply import current_plan
from surgeon.surgery.branches import settings_of
from surgeon.surgery.plan import Rewrite
from surgeon.surgery.proof import state_sha256
from surgeon.surgery.temperature import set_temperature, temperature_of

PICTURE, JOURNAL, CHECKPOINT = "curves.png", "journal.jsonl", "checkpoint"
ORDER_SEED = 0
RACE_VERSION = 2
"""Another one than a journal's means that its race tried other values."""
FEW_TO_ESTIMATE = 64
"""Statistics of fewer images are noisy."""


@dataclass(frozen=True)
class SweepRequest:
    """What to sweep, by what to choose, and what to do with the choice."""

    inference: InferenceRequest
    values: tuple[float, ...]
    axis: str = "alpha"
    """alpha, lambda, prior, or REWRITE.OPTION."""
    second: Swept | None = None
    """What else to sweep, every value with every other."""
    mix_logits: bool = False
    metric: str | None = None
    """None is what the problem is usually judged by."""
    method: Method | None = None
    """None is a grid where that is cheap, otherwise a race."""
    confirm: bool = False
    confirm_split: str | None = None
    learn: tuple[Learning, ...] = ()
    layers: str | None = None
    apply: bool = False
    temperature: bool = False
    force: bool = False
    under: tuple[str, ...] = ()
    """Conditions to choose under, by the mean over them."""
    max_clean_loss: float | None = None
    """The most accuracy (as a share) that a setting may lose on clean images."""
    output: Path | None = None
    overwrite: bool = False

    @property
    def axes(self) -> dict[str, tuple[float, ...]]:
        """The values of each axis, by its name."""
        second = {} if self.second is None else {self.second.axis: self.second.values}
        return {self.axis: self.values, **second}


def run_sweep(loaded: LoadedModel, request: SweepRequest, progress: Progress, images: ImageSet | None = None) -> Sweep:
    """Find the best setting, say whether the gain is real, and write what was found.

    If that fails, the network has the settings and the statistics that it had.
    """
    processes = Processes.launched()
    if request.output is not None:
        check_output(request.output, request.overwrite)
    parts = _parts(request, images)
    choosing, estimating, confirming = parts.images, None, parts.held_back
    if PriorAxis.name in request.axes:  # statistics are from images that no figure is of
        estimating, choosing = (choosing.subset(half) for half in halves(choosing.labels))
    make_sweepable(loaded, request.axes, request.layers)
    before = settings_of(loaded.model)
    task = prepare(loaded, request.inference, choosing)
    request = replace(request, metric=request.metric or task.problem.default_metric)
    assert request.metric is not None
    if not metrics[request.metric].applies_to_masks(task.image_set.masks is not None):
        raise SurgeonError(f"--metric {request.metric} has no value for {task.problem.name}.", "Choose another one.")
    axes = axes_but_the_prior(task.model, request.axes, request.mix_logits)
    choose_under, confirm_under = parted(ask(request.under), confirming is not None)
    if request.under and not choose_under:
        raise SurgeonError("--under clean changes nothing.", "Leave --under out, or give other conditions.")
    prior = None
    with ExitStack() as kept:
        kept.enter_context(kept_if_it_fails(*axes.values()))
        if estimating is not None:
            for other in axes.values():  # the statistics must not depend on where the network happens to be
                other.set(other.original)
            prior = PriorAxis(task, estimating, request.axes[PriorAxis.name], request.layers, progress)
            kept.enter_context(kept_if_it_fails(prior))
            axes[prior.name] = prior
        axis, values = combined(axes, request.axes)
        journal = None
        if (folder := request.output) is not None:
            used = [part for part in (choosing, confirming, estimating) if part is not None]
            journal = processes.only_first(lambda: _open_journal(folder, request, loaded, task, used))
        kept.enter_context(going_on(journal))
        runner = Runner(task.model, axis, task.inference, processes, journal, progress)
        if choose_under:
            runner = RunnerUnder(
                *(task.model, axis, task.inference, processes, journal, progress),
                preprocessing=task.preprocessing,
                conditions={CHOOSING: choose_under, CONFIRMING: confirm_under},
            )
        runner.bad |= dict.fromkeys(prior.bad if prior is not None else ())
        question = Question(
            values, metrics[request.metric], request.method, request.learn, request.force, request.max_clean_loss
        )
        held_back = task.batches(confirming) if confirming is not None else None
        sweep = Investigation(runner, question, task.batches(choosing), held_back).run(
            model=loaded.name,
            rewrites=current_plan(task.model).summary(),
            data=request.inference.data,
            split=task.image_set.split,
            estimating_images=0 if prior is None else prior.images,
            warnings=(*parts.warnings, *_warnings_of(prior), *task.remarks),
            under=under.names(choose_under),
            confirmed_under=under.names(confirm_under) if confirming is not None else (),
            max_clean_loss=request.max_clean_loss,
            preprocessing=task.preprocessing,
            tta=request.inference.tta,
            views=task.view_count,
            matched_classes=task.matched_classes,
            device=str(task.device),
            precision=task.precision,
        )
    step = prior.step(images_of(sweep.data, sweep.split, prior.images)) if prior is not None else None
    loaded.note(swept(sweep, changed=settings_of(loaded.model) != before or step is not None))
    if step is not None:
        loaded.note(step)
    return processes.only_first(lambda: _write(sweep, loaded, request)) or sweep


def check_output(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds something else than a sweep, before any work is done."""
    check_destination(folder, overwrite or (folder / JOURNAL).exists())


def _parts(request: SweepRequest, given: ImageSet | None) -> Choosing:
    """The images to choose with and those held back, in an order in which every stretch is a fair sample."""
    if given is not None:
        return Choosing(_shuffled(given))
    if request.confirm_split is None:
        parts = images_to_choose_on(request.inference, confirm=request.confirm or bool(request.learn))
    else:
        other = open_images(replace(request.inference, split=request.confirm_split))
        parts = replace(images_to_choose_on(request.inference, reserved=other.split), held_back=other)
        if other.split == parts.images.split:
            raise SurgeonError(
                f"The split {other.split!r} cannot confirm what was chosen on itself.",
                "Choose on another one with --split, or hold half of it back with --confirm.",
            )
    held_back = _shuffled(parts.held_back) if parts.held_back is not None else None
    return replace(parts, images=_shuffled(parts.images), held_back=held_back)


def _warnings_of(prior: PriorAxis | None) -> tuple[str, ...]:
    if prior is None or prior.images >= FEW_TO_ESTIMATE:
        return ()
    return (f"Statistics of {count(prior.images, 'image')} are noisy: {2 * FEW_TO_ESTIMATE} to choose on give enough.",)


def _shuffled(images: ImageSet) -> ImageSet:
    return images.subset(np.random.default_rng(ORDER_SEED).permutation(len(images)))


def _open_journal(
    folder: Path,
    request: SweepRequest,
    loaded: LoadedModel,
    task: PreparedNetwork,
    used: Sequence[ImageSet],
) -> Journal:
    folder.mkdir(parents=True, exist_ok=True)
    identity = {
        "model": [str(loaded.origin.source), state_sha256(task.model)],
        "rewriting": [
            (operation.layer, rewrite.name, _without_swept(rewrite, tuple(request.axes)))
            for operation in current_plan(task.model).operations
            for rewrite in operation.rewrites
        ],
        "data": [part.fingerprint for part in used],
        "re-estimated layers": request.layers if PriorAxis.name in request.axes else None,
        "values": [request.axis, _written(request.values), request.mix_logits],
        "second axis": None if request.second is None else [request.second.axis, _written(request.second.values)],
        "metric": request.metric,
        "method": request.method,
        **({} if request.method is Method.GRID else {"race": RACE_VERSION}),
        "learning": request.learn,
        "preprocessing": task.preprocessing.model_dump(mode="json"),
        "views": [request.inference.tta, request.inference.merge],
        "batch size": task.batch_size,
        "device": [task.device.type, task.precision],
        "treatment of bad images": request.inference.skip_bad,
        "temperature": temperature_of(task.model),
        "conditions": [[one.name for one in ask(request.under)], request.max_clean_loss],
        **outputs_for_journal([task]),
    }
    return Journal(folder / JOURNAL, identity, request.overwrite)


def _written(values: Sequence[float]) -> list[str]:
    """As text: JSON has no infinity."""
    return [f"{value:.10g}" for value in values]


def _without_swept(rewrite: Rewrite, axes: Sequence[str]) -> dict[str, Any]:
    """The options of a rewrite that a sweep leaves as they are."""
    alpha = norms[rewrite.name].config.alpha_option
    swept = {alpha if axis == AlphaAxis.name else axis.removeprefix(f"{rewrite.name}.") for axis in axes}
    return {key: value for key, value in rewrite.options.items() if key not in swept}


def _write(sweep: Sweep, loaded: LoadedModel, request: SweepRequest) -> Sweep:
    if request.output is None:
        return sweep
    if request.apply:
        sweep = _apply(sweep, loaded, request)
    write_report(sweep, request.output, PICTURE, sweep_picture, sweep_page)
    return sweep


def _apply(sweep: Sweep, loaded: LoadedModel, request: SweepRequest) -> Sweep:
    """Save the network, which the investigation has left at the setting to keep."""
    assert request.output is not None
    if request.temperature and (fitted := sweep.temperature) is not None:
        decision = decide(f"A temperature of {fitted:.4f}", sweep.temperature_gain, force=request.force)
        sweep = sweep.model_copy(update={"decision": f"{sweep.decision} {decision.reason}"})
        if decision.stored:
            set_temperature(loaded.model, (temperature_of(loaded.model) or 1.0) * fitted)
        loaded.note(
            TemperatureFitted(
                fitted_on=images_of(sweep.data, sweep.split, sweep.choosing_images),
                held_out=sweep.confirming_images,
                temperature=fitted,
                stored=decision.stored,
                forced=decision.forced,
                gain=sweep.temperature_gain,
                before=figures_of(sweep.setting(sweep.kept).reported) if sweep.kept is not None else None,
            )
        )
    folder = checkpoint.save_checkpoint(loaded, request.output / CHECKPOINT, overwrite=True)
    return sweep.model_copy(update={"checkpoint": str(folder)})
