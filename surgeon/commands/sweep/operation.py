"""The `sweep` command's whole operation: open, compete, learn, confirm, report, apply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from surgeon import checkpoint
from surgeon.commands.storing import decide
from surgeon.commands.sweep import under
from surgeon.commands.sweep.investigation import CHOOSING, CONFIRMING, Investigation, Question
from surgeon.commands.sweep.settings import ALPHA, Swept
from surgeon.commands.sweep.under import parted
from surgeon.conditions.base import ask
from surgeon.core.atomic import check_destination
from surgeon.core.errors import SurgeonError
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.data.images import ImageSet
from surgeon.data.stratified import halves
from surgeon.layers.surgical import surgical_layers
from surgeon.measuring.axes import AlphaAxis, Axis, LambdaAxis, Pair, has_alpha
from surgeon.measuring.choosing import Choosing, images_to_choose_on
from surgeon.measuring.journal import Journal
from surgeon.measuring.option_axis import OptionAxis
from surgeon.measuring.preparation import InferenceRequest, PreparedNetwork, open_images, prepare
from surgeon.measuring.prior_axis import PriorAxis
from surgeon.measuring.product_axis import ProductAxis, SingleAxis
from surgeon.measuring.runner import Runner
from surgeon.measuring.under import RunnerUnder
from surgeon.measuring.values import MOST_VALUES
from surgeon.metrics import metrics
from surgeon.models.history import TemperatureFitted
from surgeon.models.sources import LoadedModel
from surgeon.norms import norms
from surgeon.report.folder import write_report
from surgeon.report.sweep import sweep_page, sweep_picture
from surgeon.results import Learning, Method, Sweep
from surgeon.results.steps import figures_of, images_of, swept
from surgeon.surgery.apply import current_plan
from surgeon.surgery.branches import how_to_mix, settings_of
from surgeon.surgery.plan import Rewrite, RewriteRequest, resolve_plan
from surgeon.surgery.proof import rewrite, state_sha256
from surgeon.surgery.temperature import set_temperature, temperature_of

PICTURE, JOURNAL, CHECKPOINT = "curves.png", "journal.jsonl", "checkpoint"
ORDER_SEED = 0


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
    metric: str = "accuracy"
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
    """Find the best setting, say whether the gain is real, and write what was found."""
    processes = Processes.launched()
    if request.output is not None:
        check_output(request.output, request.overwrite)
    parts = _parts(request, images)
    choosing, confirming = parts.images, parts.held_back
    estimating = None
    if PriorAxis.name in request.axes:  # statistics are from images that no figure is of
        estimating, choosing = (choosing.subset(half) for half in halves(choosing.labels))
    if rewritten := [name for name in request.axes if name not in (LambdaAxis.name, PriorAxis.name)]:
        make_sweepable(loaded, rewritten, request.layers)
    task = prepare(loaded, request.inference, choosing)
    metric = metrics[request.metric]
    prior = None if estimating is None else PriorAxis(task, estimating, request.axes[PriorAxis.name], request.layers)
    axis, values = _axis_and_values(task.model, request, prior)
    journal = None
    if (folder := request.output) is not None:
        used = [part for part in (choosing, confirming, estimating) if part is not None]
        journal = processes.only_first(lambda: _open_journal(folder, request, loaded, task, used))
    choose_under, confirm_under = parted(ask(request.under), confirming is not None)
    runner = Runner(task.model, axis, task.inference, processes, journal, progress)
    if request.under:
        if not choose_under:
            raise SurgeonError("--under clean changes nothing.", "Leave --under out, or give other conditions.")
        phases = {CHOOSING: choose_under, CONFIRMING: confirm_under}
        runner = RunnerUnder(
            *(task.model, axis, task.inference, processes, journal, progress),
            preprocessing=task.preprocessing,
            conditions=phases,
        )
    question = Question(values, metric, request.method, request.learn, request.force, request.max_clean_loss)
    held_back = task.batches(confirming) if confirming is not None else None
    before = settings_of(loaded.model)
    sweep = Investigation(runner, question, task.batches(choosing), held_back).run(
        model=loaded.name,
        rewrites=current_plan(task.model).summary(),
        data=request.inference.data,
        split=task.image_set.split,
        warnings=parts.warnings,
        under=under.names(choose_under),
        confirmed_under=under.names(confirm_under) if confirming is not None else (),
        max_clean_loss=request.max_clean_loss,
        preprocessing=task.preprocessing,
        tta=request.inference.tta,
        views=task.view_count,
        device=str(task.device),
        precision=task.precision,
    )
    loaded.note(swept(sweep, changed=settings_of(loaded.model) != before))
    if prior is not None and sweep.kept == sweep.best and math.isfinite(prior.value):
        loaded.note(prior.step(images_of(request.inference.data, task.image_set.split, prior.images)))
    return processes.only_first(lambda: _write(sweep, loaded, request)) or sweep


def check_output(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds something else than a sweep, before any work is done."""
    check_destination(folder, overwrite or (folder / JOURNAL).exists())


def _axis_and_values(
    model: nn.Module, request: SweepRequest, prior: PriorAxis | None
) -> tuple[Axis, tuple[float, ...] | tuple[Pair, ...]]:
    first, *others = (
        prior if prior is not None and name == prior.name else _axis(model, name, values, request.mix_logits)
        for name, values in request.axes.items()
    )
    if (second := request.second) is None:
        return first, request.values
    both = ProductAxis(first, *others)
    pairs = both.pairs(request.values, second.values)
    if len(pairs) > MOST_VALUES:
        raise SurgeonError(
            f"{request.axis} and {second.axis} make {len(pairs):,} pairs of values, more than {MOST_VALUES:,}.",
            "Sweep fewer values at once.",
        )
    return both, pairs


def _axis(model: nn.Module, name: str, values: tuple[float, ...], mix_logits: bool) -> SingleAxis:
    if name == AlphaAxis.name:
        return AlphaAxis(model)
    if name == LambdaAxis.name:
        return LambdaAxis(model, how_to_mix(mix_logits))
    axis = OptionAxis(model, *name.split("."))
    axis.check(values)
    return axis


def make_sweepable(loaded: LoadedModel, axes: Sequence[str], layers: str | None) -> None:
    """Rewrite the BatchNorm layers so that they have what is swept, unless some are rewritten already."""
    present = {name for layer in surgical_layers(loaded.model).values() for name in layer.rewrites}
    missing: list[str] = []
    for axis in axes:
        name = ALPHA if axis == AlphaAxis.name else axis.partition(".")[0]
        if name in present or (axis == AlphaAxis.name and has_alpha(loaded.model)):
            if layers is not None:
                raise SurgeonError(
                    f"{loaded.name} has {name} layers already, so --layers has nothing to say.",
                    "Convert the original network with --layers instead.",
                )
        elif name not in missing:
            missing.append(name)
    if missing:
        rewrite(loaded, resolve_plan(loaded.model, [RewriteRequest(name=name) for name in missing], layers))


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
        "learning": request.learn,
        "preprocessing": task.preprocessing.model_dump(mode="json"),
        "views": [request.inference.tta, request.inference.merge],
        "batch size": task.batch_size,
        "device": [task.device.type, task.precision],
        "treatment of bad images": request.inference.skip_bad,
        "temperature": temperature_of(task.model),
        "conditions": [[one.name for one in ask(request.under)], request.max_clean_loss],
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
