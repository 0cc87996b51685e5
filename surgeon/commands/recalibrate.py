"""The `recalibrate` command's whole operation: estimate statistics from unlabelled images, tell what changed, write."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from surgeon import checkpoint
from surgeon.commands.sweep.settings import ALPHA
from surgeon.core.errors import ExitCode, SurgeonError, count, listing
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.data.images import ImageSet
from surgeon.data.stratified import halves
from surgeon.layers.surgical import surgical_layers
from surgeon.measuring.batches import checked_loader, checked_network
from surgeon.measuring.comparison import gain_over
from surgeon.measuring.engine import measure
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.keeping import only_scores
from surgeon.measuring.preparation import InferenceRequest, PreparedNetwork, batches_for, open_images, prepare
from surgeon.metrics import Scores, metrics, summarise
from surgeon.models.history import DataKind, DataSet, Images, Recalibrated
from surgeon.models.sources import LoadedModel, note_on
from surgeon.report.folder import write_report
from surgeon.report.recalibration import recalibration_page, recalibration_picture
from surgeon.results.recalibration import Answers, Change, Measured, Recalibration
from surgeon.results.steps import recalibrated
from surgeon.surgery.apply import current_plan, unwrapped
from surgeon.surgery.collect import collect_statistics
from surgeon.surgery.plan import RewriteRequest, resolve_plan
from surgeon.surgery.proof import rewrite
from surgeon.surgery.recalibration import FORGET, KEEP, Reestimation, images_in, reestimate

DEFAULT_PRIOR = 256.0
"""A compromise between small images, which want less, and large ones, which want more: docs/recalibrate.md."""
REPORT, PICTURE = "report", "recalibration.png"
COMPARED = ("accuracy", "cross-entropy", "scaled-cross-entropy")
BEFORE, AFTER = "before", "after"
ORDER_SEED = 0
FEW_IMAGES = 64
FEW_CLASSES = 0.25
"""Of the classes that could be among so many images."""


@dataclass(frozen=True)
class RecalibrationRequest:
    """Which images, how much they count, and what to tell."""

    task: InferenceRequest
    prior: float = DEFAULT_PRIOR
    layers: str | None = None
    confirm: bool = False
    collect: bool = False
    source: str | None = None
    output: Path | None = None
    overwrite: bool = False


def recalibrate(
    model: nn.Module, loader: Iterable[Any], *, prior: float = DEFAULT_PRIOR, layers: str | None = None
) -> Reestimation:
    """Estimate the statistics of normalisation layers anew from any iterable of images, in place, without labels.

    Args:
        model: Any network with BatchNorm layers, converted or not; it stays on its device.
        loader: Batches of images as the network expects them, or of (images, labels), whose labels are ignored.
            Unless the prior is 0 or infinite it is gone through twice, first to count the images; what can be gone
            through only once is kept in memory. Batches should be mixed: one of a single class has its own statistics.
        prior: How many images the old statistics count for. 0 forgets them, and at infinity they stay as they are.
        layers: A selector such as "stem" or "layer[34].*"; all other layers keep their statistics.

    Examples:
        >>> result = surgeon.recalibrate(model, loader, prior=256)
        >>> result.images, [layer.mean_shift for layer in result.layers]
    """
    network = unwrapped(checked_network(model))
    batches = checked_loader(loader)
    batches = list(batches) if isinstance(batches, Iterator) else batches
    images = None if prior in (FORGET, KEEP) else sum(len(images_in(batch)) for batch in batches)
    device = InferenceSettings.of(network).device
    given = (images_in(batch).to(device) for batch in batches)
    found = reestimate(network, given, prior=prior, images=images or None, layers=layers)
    data = DataSet(name=type(loader).__name__, kind=DataKind.LOADER)
    shift = sum(layer.mean_shift for layer in found.layers) / max(len(found.layers), 1)
    estimated_on = Images(data=data, split="all", number=found.images)
    note_on(network, Recalibrated(estimated_on=estimated_on, prior=prior, layers=len(found.layers), mean_shift=shift))
    return found


def run_recalibration(loaded: LoadedModel, request: RecalibrationRequest, progress: Progress) -> Recalibration:
    """Estimate, compare the network with what it was, and write it.

    Every process estimates by itself from the same batches, so that all have the same network whatever their number;
    the predictions of before and after are spread over them.
    """
    start = time.perf_counter()
    processes = Processes.launched()
    processes.gather(lambda: None)  # all have looked at the destination before one of them writes
    estimating, measuring = _parts(request)
    if request.collect:
        _make_collectable(loaded, request.layers)
    prepared = prepare(loaded, replace(request.task, tta=None), estimating)
    bad: tuple[str, ...] = ()
    if request.task.skip_bad:
        estimating, bad = _readable(prepared, estimating)
    original = copy.deepcopy(prepared.model)

    began = time.perf_counter()
    batches = _batches(prepared, estimating, progress)
    collected, found = _estimate(prepared.model, batches, len(estimating), request)
    seconds_estimating = time.perf_counter() - began
    # The statistics are set: what adapts the weights too, without labels, comes here.

    def compare(images: ImageSet, doing: str) -> tuple[Scores, Scores]:
        variants = {AFTER: prepared.variant, BEFORE: replace(prepared.variant, model=original)}
        fitting = prepared.batches(images)
        kept = measure(variants, fitting, only_scores, processes=processes, progress=progress, doing=doing).kept
        return kept[BEFORE], kept[AFTER]

    change = _change(*compare(estimating.without_labels(), "comparing"))
    confirmed = source = None
    if measuring is not None:
        confirmed = _measured(request.task.data, measuring, *compare(measuring, "confirming"))
    if request.source is not None:
        images = _source_images(loaded, request)
        source = _measured(request.source, images, *compare(images, "measuring the original domain"))

    result = Recalibration(
        model=loaded.name,
        data=request.task.data,
        split=estimating.split,
        where=request.task.where,
        rewrites=current_plan(prepared.model).summary(),
        preprocessing=prepared.preprocessing,
        device=str(prepared.device),
        precision=prepared.precision,
        images=len(estimating),
        prior=None if found is None else found.prior,
        weight=1.0 if found is None else found.weight,
        layers=() if found is None else found.layers,
        collected=collected,
        kept=() if found is None else found.kept,
        change=change,
        confirmed=confirmed,
        source=source,
        warnings=tuple(_warnings(len(estimating), change, found)),
        bad_images=bad,
        seconds_estimating=seconds_estimating,
        seconds=time.perf_counter() - start,
        checkpoint=str(request.output) if request.output is not None else None,
    )
    processes.only_first(lambda: _write(result, loaded, request))
    return result


def _parts(request: RecalibrationRequest) -> tuple[ImageSet, ImageSet | None]:
    """The images to estimate from, in random order, and labelled ones to measure on if that is asked for."""
    images = open_images(replace(request.task, labelled=request.confirm))
    measuring = None
    if request.confirm:
        first, second = halves(images.labels)
        images, measuring = images.subset(first), images.subset(second)
    # A batch of one class has statistics of its own.
    return images.subset(np.random.default_rng(ORDER_SEED).permutation(len(images))), measuring


def _source_images(loaded: LoadedModel, request: RecalibrationRequest) -> ImageSet:
    assert request.source is not None
    wanted = replace(request.task, data=request.source, split=None, where=(), labelled=True)
    return prepare(loaded, replace(wanted, tta=None)).image_set


def _readable(prepared: PreparedNetwork, images: ImageSet) -> tuple[ImageSet, tuple[str, ...]]:
    """The images that can be decoded, and the names of the others: how much the rest counts depends on its number."""
    loader = batches_for([prepared], images)
    good = [int(index) for batch in loader for index in batch.indices]
    return (images if not loader.bad else images.subset(good)), tuple(loader.bad)


def _batches(prepared: PreparedNetwork, images: ImageSet, progress: Progress) -> Iterator[Tensor]:
    done = 0
    # Few images that are left over would be normalised by what is hardly an estimate.
    for batch in batches_for([prepared], images, fewest=prepared.batch_size // 2):
        done += len(batch.labels)
        progress("estimating statistics", done, len(images))
        yield batch.images.to(prepared.device)


def _make_collectable(loaded: LoadedModel, layers: str | None) -> None:
    """Rewrite the GroupNorm layers of a network that has not been converted, so that they can keep statistics."""
    if not surgical_layers(loaded.model):
        rewrite(loaded, resolve_plan(loaded.model, [RewriteRequest(name=ALPHA, options={"alpha": 1.0})], layers))


def _estimate(
    model: nn.Module, batches: Iterator[Tensor], images: int, request: RecalibrationRequest
) -> tuple[tuple[str, ...], Reestimation | None]:
    if request.collect:
        lacking = tuple(name for name, layer in surgical_layers(model).items() if not layer.has_statistics)
        collect_statistics(model, batches)
        return lacking, None
    return (), reestimate(model, batches, prior=request.prior, images=images, layers=request.layers)


def _change(before: Scores, after: Scores) -> Change:
    old, new = before.images(), after.images()
    if old.nan.any() or new.nan.any():
        raise SurgeonError("Predictions of the network are not numbers.", "Check its weights.", ExitCode.FAILED)
    return Change(
        images=len(old),
        outputs=old.classes,
        before=_answers(old.predicted, old.confidence),
        after=_answers(new.predicted, new.confidence),
        changed=float((old.predicted != new.predicted).mean()),
    )


def _answers(predicted: Any, confidence: Any) -> Answers:
    _, numbers = np.unique(predicted, return_counts=True)
    shares = numbers / numbers.sum()
    return Answers(
        confidence=float(np.mean(confidence)),
        classes=len(numbers),
        effective_classes=float(math.exp(-(shares * np.log(shares)).sum())),
    )


def _measured(data: str, images: ImageSet, before: Scores, after: Scores) -> Measured:
    return Measured(
        data=data,
        split=images.split,
        before=summarise(before),
        after=summarise(after),
        gains=tuple(gain_over(before, after, metrics[name]) for name in COMPARED),
    )


def _warnings(images: int, change: Change, found: Reestimation | None) -> Iterator[str]:
    if images < FEW_IMAGES:
        yield f"Statistics of {count(images, 'image')} are noisy: use {FEW_IMAGES} or more, or a larger --prior."
    classes = change.before.effective_classes
    if images > 1 and classes < FEW_CLASSES * min(images, change.outputs):
        yield (
            f"The network sees about {max(classes, 1):.0f} of its classes in these images. The statistics of few "
            "classes are not those of the task: use images as they will come."
        )
    if change.after.effective_classes < change.before.effective_classes / 2:
        yield "The recalibrated network predicts far fewer classes than the original: it may have collapsed."
    if found is not None and found.kept:
        yield f"{listing(found.kept, limit=3)} kept statistics of their own, which are not estimated."


def _write(result: Recalibration, loaded: LoadedModel, request: RecalibrationRequest) -> None:
    if request.output is None:
        return
    checkpoint.save_checkpoint(loaded, request.output, recalibrated(result), overwrite=request.overwrite)
    write_report(result, request.output / REPORT, PICTURE, recalibration_picture, recalibration_page)
