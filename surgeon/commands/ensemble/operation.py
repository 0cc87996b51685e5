"""The `ensemble` command's whole operation: choose, average, compare, report, and write the average of the weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from surgeon import checkpoint
from surgeon.commands.ensemble.comparison import compare_all, disagreement_of, mean_of_pairs
from surgeon.commands.ensemble.greedy import choose_members
from surgeon.commands.ensemble.prediction import Predictor, Progress
from surgeon.commands.ensemble.soup import average_weights, check_alike
from surgeon.commands.ensemble.verdict import in_sentences
from surgeon.core.atomic import staged
from surgeon.core.errors import SurgeonError
from surgeon.core.processes import Processes
from surgeon.data.images import ImageSet
from surgeon.data.loaders import Batch
from surgeon.data.sources import WHOLE, MissingSplitError
from surgeon.measuring.choosing import images_to_choose_on
from surgeon.measuring.setup import Request, Task, open_images, prepare
from surgeon.metrics import metrics
from surgeon.models.sources import LoadedModel
from surgeon.report.ensemble import ensemble_page, ensemble_picture
from surgeon.report.wording import short_names
from surgeon.results import Choice, Ensemble, Restatement
from surgeon.results.steps import averaged
from surgeon.surgery.restatistics import keeps_statistics, restate_statistics

RESULT, PICTURE, PAGE, CHECKPOINT = "result.json", "ensemble.png", "report.html", "checkpoint"
ORDER_SEED = 0


@dataclass(frozen=True)
class EnsembleRequest:
    """Which images, whether to choose among the members, and whether to average their weights too."""

    task: Request
    metric: str = "accuracy"
    greedy: bool = False
    choose_split: str | None = None
    soup: bool = False
    statistics_split: str = "train"
    statistics_images: int = 2048
    output: Path | None = None


def run_ensemble(members: Sequence[LoadedModel], request: EnsembleRequest, progress: Progress) -> Ensemble:
    """Measure every member and their average on the same images, and write what was found."""
    start = time.perf_counter()
    processes = Processes.launched()
    if request.soup:
        check_alike(members)
    images = open_images(request.task)
    reported, choosing, warnings = _parts(images, request)
    statistics_images = _statistics_images(request) if request.soup else None
    tasks = [prepare(member, request.task, images) for member in members]
    predictor = Predictor(tasks, processes, progress)
    names = [member.name for member in members]
    everyone = list(range(len(members)))

    groups, chosen, choice = {"ensemble": everyone}, everyone, None
    if choosing is not None:
        kept = predictor.keep(choosing, "choosing members")
        chosen, steps = choose_members(names, kept, metrics[request.metric], request.task.merge)
        half = choosing.split == reported.split
        choice = Choice(split=choosing.split, half=half, images=len(kept.labels), steps=tuple(steps))
        groups["greedy ensemble"] = chosen

    soup, restatement = None, None
    if statistics_images is not None:
        soup = average_weights([members[number] for number in chosen])
        soup_task = prepare(soup, request.task, images)
        restatement = _restate(soup_task, statistics_images, progress)
        predictor = replace(predictor, tasks=[*tasks, soup_task])

    scored = predictor.score(reported, list(groups.values()), request.task.merge, f"predicting with {len(members)}")
    disagreement = disagreement_of(scored.networks[: len(members)])
    combined = [
        (name, [names[number] for number in group], len(group), scores)
        for (name, group), scores in zip(groups.items(), scored.groups, strict=True)
    ]
    if soup is not None:
        combined.append(("soup", [names[number] for number in chosen], 1, scored.networks[-1]))
    found, best, combinations = compare_all(
        members, [task.preprocessing for task in tasks], scored.networks[: len(members)], combined, request.metric
    )
    result = Ensemble(
        data=request.task.data,
        split=reported.split,
        warnings=warnings,
        merge=request.task.merge,
        metric=request.metric,
        members=found,
        best=best,
        combinations=combinations,
        disagreement=disagreement,
        mean_disagreement=mean_of_pairs(disagreement),
        choice=choice,
        statistics=restatement,
        summary=(),
        tta=request.task.tta,
        views=tasks[0].view_count,
        device=str(tasks[0].device),
        precision=tasks[0].precision,
        bad_images=tuple(scored.bad),
        seconds=time.perf_counter() - start,
    )
    result = result.model_copy(update={"summary": in_sentences(result)})
    averaged_members = [members[number] for number in chosen]
    return processes.only_first(lambda: _write(result, soup, averaged_members, request)) or result


def _parts(images: ImageSet, request: EnsembleRequest) -> tuple[ImageSet, ImageSet | None, tuple[str, ...]]:
    """The images to report on, others to choose members on (of another split, or half of these), and warnings."""
    if not request.greedy:
        return images, None, ()
    try:
        choosing = images_to_choose_on(replace(request.task, split=request.choose_split))
    except MissingSplitError as error:
        raise SurgeonError(error.message, error.hint_for("--choose-split"), error.exit_code) from error
    if choosing.images.split != images.split:
        return images, choosing.images, choosing.warnings
    halved = images_to_choose_on(replace(request.task, split=images.split), confirm=True)
    assert halved.held_back is not None
    return halved.held_back, halved.images, halved.warnings


def _statistics_images(request: EnsembleRequest) -> ImageSet:
    """Training images in random order: a batch of one class has statistics of its own."""
    wanted = replace(request.task, split=request.statistics_split, limit=request.statistics_images)
    try:
        images = open_images(wanted)
    except MissingSplitError as error:
        raise SurgeonError(
            f"A soup needs images for its BatchNorm statistics. {error.message}",
            error.hint_for("--statistics-split")
            if error.splits
            else f"Put training images into train/, or pass --statistics-split {WHOLE}.",
            error.exit_code,
        ) from error
    return images.subset(np.random.default_rng(ORDER_SEED).permutation(len(images)))


def _restate(task: Task, images: ImageSet, progress: Progress) -> Restatement:
    """Estimate the statistics of averaged weights; every process does so by itself, from the same images."""
    done = 0
    label = "estimating statistics"

    def moved(batch: Batch) -> tuple[object, ...]:
        nonlocal done
        done += len(batch.labels)
        progress(label, done, len(images))
        return (batch.images.to(task.device),)

    loader = task.with_one_view().batches(images)
    layers = restate_statistics(task.model, (moved(batch) for batch in loader if len(batch.labels)))
    return Restatement(split=images.split, images=done, layers=layers, averaged_layers=keeps_statistics(task.model))


def _write(
    result: Ensemble, soup: LoadedModel | None, members: Sequence[LoadedModel], request: EnsembleRequest
) -> Ensemble:
    folder = request.output
    if folder is None:
        return result
    if soup is not None:
        where = folder / CHECKPOINT
        names = short_names([member.name for member in members])
        named = [(names[member.name], member) for member in members]
        step = averaged(result, named, start=len(soup.origin.history))
        checkpoint.save_checkpoint(soup, where, step, overwrite=True)
        result = result.model_copy(update={"checkpoint": str(where)})
    with staged(folder, (PICTURE, PAGE, RESULT)) as stage:
        (stage / RESULT).write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
        ensemble_picture(result, stage / PICTURE)
        (stage / PAGE).write_text(ensemble_page(result), encoding="utf-8")
    return result
