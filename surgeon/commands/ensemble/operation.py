"""The `ensemble` command's whole operation: choose, average, compare, report, and write the average of the weights."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from surgeon import checkpoint
from surgeon.commands.ensemble.comparison import compare_all, disagreement_of, mean_of_pairs
from surgeon.commands.ensemble.greedy import MemberLogits, choose_members
from surgeon.commands.ensemble.soup import average_weights, check_alike
from surgeon.commands.ensemble.verdict import in_sentences
from surgeon.core.errors import SurgeonError
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.data.images import ImageSet
from surgeon.data.loaders import Batch, Batches
from surgeon.data.named_splits import WHOLE, MissingSplitError
from surgeon.measuring.choosing import images_to_choose_on
from surgeon.measuring.engine import measure
from surgeon.measuring.keeping import Logits
from surgeon.measuring.preparation import InferenceRequest, PreparedNetwork, batches_for, open_images, prepare
from surgeon.measuring.variants import Average, Variant
from surgeon.metrics import metrics
from surgeon.models.origin import LoadedModel
from surgeon.report.ensemble import ensemble_page, ensemble_picture
from surgeon.report.folder import write_report
from surgeon.report.wording import short_names
from surgeon.results import Choice, Ensemble, Restatement
from surgeon.results.steps import averaged
from surgeon.surgery.recalibration import FORGET, reestimate, without_example_weighting

PICTURE, CHECKPOINT = "ensemble.png", "checkpoint"
EVERYONE, CHOSEN, SOUP = "ensemble", "greedy ensemble", "soup"
ORDER_SEED = 0


@dataclass(frozen=True)
class EnsembleRequest:
    """Which images, whether to choose among the members, and whether to average their weights too."""

    inference: InferenceRequest
    metric: str | None = None
    """None is what the problem is usually judged by."""
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
    images = open_images(request.inference)
    reported, choosing, warnings = _parts(images, request)
    statistics_images = _statistics_images(request) if request.soup else None
    # By number, because a member may be called anything, "soup" too.
    everyone = [str(number) for number in range(len(members))]
    names = {key: member.name for key, member in zip(everyone, members, strict=True)}
    networks = {key: prepare(member, request.inference, images) for key, member in zip(everyone, members, strict=True)}
    request = replace(request, metric=request.metric or networks[everyone[0]].problem.default_metric)
    assert request.metric is not None
    _check_masks(list(networks.values()), request)
    first, together = networks[everyone[0]], partial(measure, processes=processes, progress=progress)

    groups, choice = {EVERYONE: everyone}, None
    if choosing is not None:
        logits = together(_variants(networks), _batches(networks, choosing), _all_logits, doing="choosing members")
        each = [logits.kept[key].in_order() for key in everyone]
        kept = MemberLogits([of_member for of_member, _, _ in each], *each[0][1:])
        chosen, steps = choose_members(list(names.values()), kept, metrics[request.metric], request.inference.merge)
        half = choosing.split == reported.split
        choice = Choice(split=choosing.split, half=half, images=len(kept.labels), steps=tuple(steps))
        groups[CHOSEN] = [everyone[number] for number in chosen]

    soup, restatement = None, None
    in_soup = groups.get(CHOSEN, everyone)
    averaged = [members[int(key)] for key in in_soup]
    if statistics_images is not None:
        soup = average_weights(averaged)
        networks[SOUP] = prepare(soup, request.inference, images)
        restatement = _restate(networks[SOUP], statistics_images, progress)

    measured = together(
        _variants(networks),
        _batches(networks, reported),
        first.problem.keep,
        averages={name: Average(group, request.inference.merge) for name, group in groups.items()},
        doing=f"predicting with {len(members)}",
    )
    scores = [measured.kept[key] for key in everyone]
    disagreement = disagreement_of(scores)
    passes = {name: (group, len(group)) for name, group in groups.items()}
    if soup is not None:
        passes[SOUP] = in_soup, 1
    combined = [
        (name, [names[key] for key in group], number, measured.kept[name]) for name, (group, number) in passes.items()
    ]
    found, best, combinations = compare_all(
        members, [networks[key].preprocessing for key in everyone], scores, combined, request.metric
    )
    result = Ensemble(
        data=request.inference.data,
        split=reported.split,
        warnings=warnings,
        merge=request.inference.merge,
        metric=request.metric,
        members=found,
        best=best,
        combinations=combinations,
        disagreement=disagreement,
        mean_disagreement=mean_of_pairs(disagreement),
        choice=choice,
        statistics=restatement,
        summary=(),
        tta=request.inference.tta,
        views=first.view_count,
        device=str(first.device),
        precision=first.precision,
        matched_classes=first.matched_classes,
        bad_images=tuple(measured.bad),
        seconds=time.perf_counter() - start,
    )
    result = result.model_copy(update={"summary": in_sentences(result)})
    return processes.only_first(lambda: _write(result, soup, averaged, request)) or result


def _check_masks(networks: Sequence[PreparedNetwork], request: EnsembleRequest) -> None:
    """Refuse what cannot be done with masks."""
    assert request.metric is not None
    masks = networks[0].image_set.masks is not None
    if not metrics[request.metric].applies_to_masks(masks):
        raise SurgeonError(f"--metric {request.metric} has no value for {networks[0].problem.name}.")
    if masks and request.greedy:
        raise SurgeonError("--greedy keeps all logits, and those of masks are too many.", "Leave it out.")
    if masks and len({network.preprocessing.input_size for network in networks}) > 1:
        raise SurgeonError(
            "Masks of networks with different input sizes cannot be averaged.", "Give all the same with --input-size."
        )


def _variants(networks: Mapping[str, PreparedNetwork]) -> dict[str, Variant]:
    return {name: network.variant for name, network in networks.items()}


def _batches(networks: Mapping[str, PreparedNetwork], images: ImageSet) -> Batches:
    return batches_for(list(networks.values()), images)


def _all_logits(name: str) -> Logits:  # noqa: ARG001
    return Logits()


def _parts(images: ImageSet, request: EnsembleRequest) -> tuple[ImageSet, ImageSet | None, tuple[str, ...]]:
    """The images to report on, others to choose members on (of another split, or half of these), and warnings."""
    if not request.greedy:
        return images, None, ()
    try:
        choosing = images_to_choose_on(replace(request.inference, split=request.choose_split))
    except MissingSplitError as error:
        raise SurgeonError(error.message, error.hint_for("--choose-split"), error.exit_code) from error
    if choosing.images.split != images.split:
        return images, choosing.images, choosing.warnings
    halved = images_to_choose_on(replace(request.inference, split=images.split), confirm=True)
    assert halved.held_back is not None
    return halved.held_back, halved.images, halved.warnings


def _statistics_images(request: EnsembleRequest) -> ImageSet:
    """Training images in random order: a batch of one class has statistics of its own."""
    wanted = replace(request.inference, split=request.statistics_split, limit=request.statistics_images)
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


def _restate(network: PreparedNetwork, images: ImageSet, progress: Progress) -> Restatement:
    """Estimate the statistics of averaged weights; every process does so by itself, from the same images."""
    done = 0
    label = "estimating statistics"

    def moved(batch: Batch) -> Tensor:
        nonlocal done
        done += len(batch.labels)
        progress(label, done, len(images))
        return batch.images.to(network.device)

    loader = network.with_one_view().batches(images)
    with without_example_weighting(network.model):
        # Branches saw other images in training, and frozen layers were trained to the statistics that they have.
        found = reestimate(
            network.model,
            (moved(batch) for batch in loader if len(batch.labels)),
            prior=FORGET,
            auxiliary=False,
            frozen=False,
        )
    return Restatement(split=images.split, images=done, layers=len(found.layers), averaged_layers=found.kept)


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
    write_report(result, folder, PICTURE, ensemble_picture, ensemble_page)
    return result
