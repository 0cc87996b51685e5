"""The `recalibrate` command's whole operation: estimate statistics from unlabelled images, tell what changed, write."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from surgeon import checkpoint
from surgeon.commands.evaluate import write_logits
from surgeon.commands.recalibrate.both_ways import logits_both_ways
from surgeon.commands.recalibrate.findings import change_between, effective_number, measurement, warnings_about
from surgeon.commands.sweep.settings import ALPHA
from surgeon.core.errors import SurgeonError
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.data.images import ImageSet
from surgeon.data.stratified import Indices, halves
from surgeon.data.tables import LABEL_FACT
from surgeon.layers.surgical import surgical_layers
from surgeon.measuring.engine import measure
from surgeon.measuring.preparation import (
    InferenceRequest,
    PreparedNetwork,
    batches_for,
    open_images,
    prepare,
    readable_images,
)
from surgeon.metrics import Scores
from surgeon.models.origin import LoadedModel
from surgeon.problems import CLASSIFICATION
from surgeon.report.folder import report_files
from surgeon.report.recalibration import recalibration_page, recalibration_picture
from surgeon.results.recalibration import Recalibration
from surgeon.results.steps import recalibrated
from surgeon.surgery.apply import current_plan
from surgeon.surgery.collect import collect_statistics
from surgeon.surgery.entropy import EPOCHS, RATE, EntropyResult, minimise_entropy
from surgeon.surgery.plan import RewriteRequest, resolve_plan
from surgeon.surgery.proof import rewrite
from surgeon.surgery.recalibration import DEFAULT_PRIOR, Reestimation, reestimate

REPORT, PICTURE = "report", "recalibration.png"
BEFORE, AFTER = "before", "after"
ORDER_SEED = 0


@dataclass(frozen=True)
class EntropyRequest:
    """How to minimise the entropy of predictions once statistics are estimated."""

    epochs: int = EPOCHS
    lr: float = RATE


@dataclass(frozen=True)
class RecalibrationRequest:
    """Which images, how much they count, and what to tell."""

    task: InferenceRequest
    prior: float = DEFAULT_PRIOR
    layers: str | None = None
    confirm: bool = False
    collect: bool = False
    tent: EntropyRequest | None = None
    source: str | None = None
    save_logits: Path | None = None
    """With `confirm`: of all images, each half as the network predicts it that the other half has adapted."""
    output: Path | None = None
    overwrite: bool = False


def run_recalibration(loaded: LoadedModel, request: RecalibrationRequest, progress: Progress) -> Recalibration:
    """Estimate, compare the network with what it was, and write it.

    Every process estimates by itself from the same batches, so that all have the same network whatever their number;
    the predictions of before and after are spread over them.
    """
    start = time.perf_counter()
    processes = Processes.launched()
    processes.gather(lambda: None)  # all have looked at the destination before one of them writes
    whole, parts = _halved(request)
    estimating = _shuffled(whole if parts is None else whole.subset(parts[0]))
    measuring = None if parts is None else whole.subset(parts[1])
    if request.collect:
        _make_collectable(loaded, request.layers)
    prepared = prepare(loaded, replace(request.task, tta=None), estimating)
    estimating, bad = readable_images(prepared, estimating)
    if request.tent is not None and prepared.problem is not CLASSIFICATION:
        raise SurgeonError("Entropy is minimised over the classes of images, not over masks.", "Leave --tent out.")
    original = copy.deepcopy(prepared.model)

    began = time.perf_counter()
    collected, found = _estimate(prepared, estimating, request, progress)
    seconds_estimating = time.perf_counter() - began
    entropy = None if request.tent is None else _minimise(prepared, estimating, request.tent, progress)

    def compare(images: ImageSet, doing: str, fitted: PreparedNetwork = prepared) -> tuple[Scores, Scores]:
        variants = {AFTER: fitted.variant, BEFORE: replace(fitted.variant, model=original)}
        fitting = fitted.batches(images)
        kept = measure(variants, fitting, fitted.problem.keep, processes=processes, progress=progress, doing=doing).kept
        return kept[BEFORE], kept[AFTER]

    change = change_between(*compare(estimating.without_labels(), "comparing"))
    # Where labels are known, they tell better which classes there are than a network for which all is strange.
    known = request.confirm and estimating.masks is None
    classes = effective_number(estimating.labels) if known else change.before.effective_classes
    if LABEL_FACT in estimating.facts:  # whose classes may be others than the network's
        classes = min(classes, effective_number(estimating.facts[LABEL_FACT][estimating.positions]))
    confirmed = source = None
    if measuring is not None:
        figures = compare(measuring, "confirming")
        confirmed = measurement(request.task.data, measuring, *figures, prepared.matched_classes)
    if request.source is not None:
        at_source = _prepared_for_source(loaded, request)
        images = at_source.image_set
        figures = compare(images, "measuring the original domain", at_source)  # whose classes may be numbered otherwise
        source = measurement(request.source, images, *figures, at_source.matched_classes)
    logits = None
    if request.save_logits is not None and parts is not None:

        def adapt(network: PreparedNetwork, images: ImageSet) -> None:
            usable, _ = readable_images(network, _shuffled(images))
            _estimate(network, usable, request, progress)
            if request.tent is not None:
                _minimise(network, usable, request.tent, progress)

        logits = logits_both_ways(prepared, original, whole, parts, adapt, processes, progress)

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
        entropy=entropy,
        change=change,
        confirmed=confirmed,
        source=source,
        warnings=(*warnings_about(len(estimating), classes, change, found, entropy), *prepared.remarks),
        bad_images=bad,
        seconds_estimating=seconds_estimating,
        seconds=time.perf_counter() - start,
        logits_file=str(request.save_logits) if logits is not None else None,
        checkpoint=str(request.output) if request.output is not None else None,
    )

    def write() -> None:
        if logits is not None and request.save_logits is not None:
            write_logits(logits, request.save_logits)
        _write(result, loaded, request)

    processes.only_first(write)
    return result


def _halved(request: RecalibrationRequest) -> tuple[ImageSet, tuple[Indices, Indices] | None]:
    """The images, and their halves to estimate from and to measure on if that is asked for."""
    images = open_images(replace(request.task, labelled=request.confirm))
    return images, halves(images.labels) if request.confirm else None


def _shuffled(images: ImageSet) -> ImageSet:
    """In random order: a batch of one class has statistics of its own."""
    return images.subset(np.random.default_rng(ORDER_SEED).permutation(len(images)))


def _prepared_for_source(loaded: LoadedModel, request: RecalibrationRequest) -> PreparedNetwork:
    assert request.source is not None
    wanted = replace(request.task, data=request.source, split=None, where=(), labelled=True)
    return prepare(loaded, replace(wanted, tta=None))


class _Shown:
    """The images to estimate from, in batches on the network's device, as often as they are wanted."""

    def __init__(self, prepared: PreparedNetwork, images: ImageSet, progress: Progress | None) -> None:
        # Few images that are left over would be normalised by what is hardly an estimate.
        self.loader = batches_for([prepared], images, fewest=prepared.batch_size // 2)
        self.device, self.images, self.progress = prepared.device, len(images), progress

    def __iter__(self) -> Iterator[Tensor]:
        done = 0
        for batch in self.loader:
            done += len(batch.labels)
            if self.progress is not None:
                self.progress("estimating statistics", done, self.images)
            yield batch.images.to(self.device)


def _minimise(prepared: PreparedNetwork, images: ImageSet, wanted: EntropyRequest, progress: Progress) -> EntropyResult:
    def tell(_: str, done: int, total: int, remark: str = "", /) -> None:
        progress("minimising entropy", done * len(images), total * len(images), remark)

    batches = _Shown(prepared, images, None)
    return minimise_entropy(prepared.model, batches, epochs=wanted.epochs, lr=wanted.lr, progress=tell)


def _make_collectable(loaded: LoadedModel, layers: str | None) -> None:
    """Rewrite the GroupNorm layers of a network that has not been converted, so that they can keep statistics."""
    if not surgical_layers(loaded.model):
        rewrite(loaded, resolve_plan(loaded.model, [RewriteRequest(name=ALPHA, options={"alpha": 1.0})], layers))


def _estimate(
    prepared: PreparedNetwork, images: ImageSet, request: RecalibrationRequest, progress: Progress
) -> tuple[tuple[str, ...], Reestimation | None]:
    model, batches = prepared.model, _Shown(prepared, images, progress)
    if request.collect:
        lacking = tuple(name for name, layer in surgical_layers(model).items() if not layer.has_statistics)
        collect_statistics(model, batches)
        return lacking, None
    return (), reestimate(model, batches, prior=request.prior, images=len(images), layers=request.layers)


def _write(result: Recalibration, loaded: LoadedModel, request: RecalibrationRequest) -> None:
    if request.output is None:
        return
    report = report_files(result, PICTURE, recalibration_picture, recalibration_page)
    if not result.layers:  # where layers had no statistics, nothing moved that could be drawn
        del report[PICTURE]
    checkpoint.save_checkpoint(
        loaded,
        request.output,
        recalibrated(result),
        overwrite=request.overwrite,
        beside={f"{REPORT}/{name}": write for name, write in report.items()},
    )
