"""The `robustness` command's whole operation: networks x conditions on the same images, figures, and a report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from surgeon.commands.robustness.examples import example_pictures
from surgeon.commands.robustness.figures import (
    CLEAN,
    Column,
    attack_checks,
    condition_figures,
    corruption_figures,
    is_complete,
    summary_figures,
)
from surgeon.conditions.base import Asked, ask, conditions
from surgeon.core.atomic import check_destination
from surgeon.core.errors import SurgeonError, count, listing
from surgeon.core.media import Medium
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.data.corrupted import CorruptedImages, corrupted_table, is_corrupted_folder, open_corrupted_folder
from surgeon.data.imagenet import CLASSES
from surgeon.data.images import ImageSet
from surgeon.data.loaders import Batches
from surgeon.data.opening import IMAGENET_A
from surgeon.data.stratified import limit
from surgeon.measuring.books import Books
from surgeon.measuring.conditions import ConditionMaker
from surgeon.measuring.contest import Measurement
from surgeon.measuring.journal import Journal, going_on
from surgeon.measuring.preparation import (
    InferenceRequest,
    PreparedNetwork,
    batches_for,
    open_images,
    outputs_for_journal,
    prepare,
)
from surgeon.measuring.variants import Variant
from surgeon.metrics import Scores
from surgeon.models.origin import LoadedModel
from surgeon.report.folder import write_report
from surgeon.report.robustness import robustness_page, robustness_picture
from surgeon.results import NetworkRobustness, Robustness
from surgeon.surgery.apply import current_plan
from surgeon.surgery.proof import state_sha256
from surgeon.surgery.temperature import temperature_of

PICTURE, JOURNAL = "robustness.png", "journal.jsonl"
DEFAULT = {Medium.IMAGE: ("corruptions",), Medium.SOUND: ("white-noise",)}
NATIVE = 224
SEPARATOR = "\n"
"""Between the number of a network and a condition, in the name of a variant."""


@dataclass(frozen=True)
class RobustnessRequest:
    """Which images, under which conditions."""

    inference: InferenceRequest
    under: tuple[str, ...] = ()
    """Besides clean images; all corruptions if there are none, but nothing for ImageNet-A, whose images are hard."""
    seed: int = 0
    output: Path | None = None
    overwrite: bool = False


def run_robustness(loaded: Sequence[LoadedModel], request: RobustnessRequest, progress: Progress) -> Robustness:
    """Measure networks under conditions on the same images; the first is what the others are compared with."""
    start = time.perf_counter()
    processes = Processes.launched()
    if request.output is not None:
        check_output(request.output, request.overwrite)
    whole = request.inference
    corrupted, plain = _open(request)
    if corrupted is not None:
        columns, asked = _columns_of(corrupted, request.under), []
        images = next(iter(corrupted.parts.values()))
        if corrupted.ready and whole.images.crop_pct is None:
            whole = replace(whole, images=replace(whole.images, crop_pct=1.0))
    else:
        assert plain is not None
        hard_already = whole.data.startswith(IMAGENET_A)
        asked = ask((CLEAN, *(request.under or (() if hard_already else DEFAULT[plain.medium]))))
        columns, images = [Column.of(one) for one in asked], plain
    networks = [prepare(one, whole, images) for one in loaded]
    journal = None
    if (folder := request.output) is not None:
        used = list(corrupted.parts.values()) if corrupted is not None else [images]
        journal = processes.only_first(lambda: _open_journal(folder, request, loaded, networks, columns, used))
    books = Books(processes, journal, progress, counted="prediction", keep=networks[0].problem.keep)
    with going_on(journal):
        if corrupted is not None:
            scores = _measure_corrupted(books, networks, corrupted, columns)
        else:
            scores = _measure(books, networks, asked, request.seed, images)
    result = _result(loaded, networks, columns, scores, request, books, images, corrupted is None, start)
    if folder is not None:
        examples = processes.only_first(lambda: example_pictures(networks[0], images, asked, request.seed))
        page = partial(robustness_page, examples=examples or b"")
        processes.only_first(lambda: write_report(result, folder, PICTURE, robustness_picture, page))
    return result


def check_output(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds something else, before any work is done."""
    check_destination(folder, overwrite or (folder / JOURNAL).exists())


def _open(request: RobustnessRequest) -> tuple[CorruptedImages | None, ImageSet | None]:
    """Images that are corrupted already, or clean ones."""
    inference = request.inference
    if is_corrupted_folder(inference.data):
        return open_corrupted_folder(inference.data).limited(inference.limit), None
    images = open_images(replace(inference, limit=None))
    if (table := corrupted_table(images)) is not None:
        return table.limited(inference.limit), None
    if inference.limit is not None:
        images = images.subset(limit(images.labels, inference.limit))
    return None, images


def _columns_of(corrupted: CorruptedImages, under: Sequence[str]) -> list[Column]:
    """What the data hold, or what is wanted of it."""
    wanted = {one.name for one in ask(under)}
    held = [
        Column(
            f"{name}:severity={severity}",
            name,
            conditions[name].family.value if name in conditions else "other",
            severity,
            {"severity": severity},
        )
        for name, severity in corrupted.parts
    ]
    columns = [column for column in held if not wanted or column.condition in wanted]
    if missing := wanted - {column.condition for column in held}:
        raise SurgeonError(
            f"The data hold no images under {listing(sorted(missing), limit=3)}.",
            f"--under chooses among {listing(dict.fromkeys(column.name for column in held), limit=20)}.",
        )
    return columns


def _measure(
    books: Books, networks: Sequence[PreparedNetwork], asked: Sequence[Asked], seed: int, images: ImageSet
) -> list[dict[str, Scores]]:
    """All networks under all conditions, in one pass over the images."""
    maker = ConditionMaker(seed)
    variants = {
        f"{number}{SEPARATOR}{one.name}": Variant(
            network.model,
            network.inference,
            network.preprocessing,
            condition=maker.make(one, network.preprocessing, network.model, network.outputs),
        )
        for one in asked
        for number, network in enumerate(networks)
    }
    samples = batches_for(networks, images)
    found = _hold(books, "predicting", variants, samples)
    return [{one.name: found[f"{number}{SEPARATOR}{one.name}"] for one in asked} for number in range(len(networks))]


def _measure_corrupted(
    books: Books, networks: Sequence[PreparedNetwork], corrupted: CorruptedImages, columns: Sequence[Column]
) -> list[dict[str, Scores]]:
    """All networks on the images of each corruption and severity."""
    scores: list[dict[str, Scores]] = [{} for _ in networks]
    for column in columns:
        assert column.severity is not None
        samples = batches_for(networks, corrupted.parts[column.name, column.severity])
        found = _hold(books, column.condition, {str(n): network.variant for n, network in enumerate(networks)}, samples)
        for number, of_network in enumerate(scores):
            of_network[column.condition] = found[str(number)]
    return scores


def _hold(books: Books, phase: str, variants: Mapping[str, Variant], samples: Batches) -> dict[str, Scores]:
    measurement = Measurement(list(variants), len(samples))
    books.hold(phase, measurement, lambda _: variants, samples)
    if not any(map(len, measurement.scores.values())):
        images = count(len(samples.image_set), "image")
        raise SurgeonError(f"None of the {images} of {samples.image_set.name!r} can be read.")
    return cast("dict[str, Scores]", measurement.scores)


def _result(
    loaded: Sequence[LoadedModel],
    networks: Sequence[PreparedNetwork],
    columns: Sequence[Column],
    scores: Sequence[Mapping[str, Scores]],
    request: RobustnessRequest,
    books: Books,
    images: ImageSet,
    made_here: bool,
    start: float,
) -> Robustness:
    first = networks[0]
    found = []
    for number, (model, network, measured) in enumerate(zip(loaded, networks, scores, strict=True)):
        baseline = scores[0] if number else None
        imagenet = _is_imagenet(network, images)
        plan = getattr(model.model, "surgery", None)
        found.append(
            NetworkRobustness(
                model=model.name,
                rewrites=plan.summary() if plan is not None else "",
                preprocessing=network.preprocessing,
                conditions=condition_figures(columns, measured, baseline),
                corruptions=corruption_figures(columns, measured, baseline, imagenet),
                figures=summary_figures(columns, measured, baseline, imagenet),
                attack_checks=attack_checks(columns, measured) if made_here else (),
            )
        )
    return Robustness(
        data=request.inference.data,
        split=images.split if made_here else "all",
        images=len(next(iter(scores[0].values()))),
        networks=tuple(found),
        complete=is_complete(columns),
        made_here=made_here,
        seed=request.seed,
        tta=request.inference.tta,
        views=first.view_count,
        device=str(first.device),
        precision=first.precision,
        matched_classes=next((one.matched_classes for one in networks if one.matched_classes), None),
        bad_images=tuple(books.bad),
        warnings=first.remarks if made_here else (),
        seconds=time.perf_counter() - start,
    )


def _is_imagenet(network: PreparedNetwork, images: ImageSet) -> bool:
    """Whether figures may be divided by AlexNet's: a thousand classes, at 224 pixels."""
    sides = set(network.preprocessing.input_size[1:])
    return sides == {NATIVE} and len(images.class_names) == CLASSES and images.outputs is None


def _open_journal(
    folder: Path,
    request: RobustnessRequest,
    loaded: Sequence[LoadedModel],
    networks: Sequence[PreparedNetwork],
    columns: Sequence[Column],
    used: Sequence[ImageSet],
) -> Journal:
    folder.mkdir(parents=True, exist_ok=True)
    inference = request.inference
    identity = {
        "models": [[str(one.origin.source), state_sha256(one.model)] for one in loaded],
        "rewriting": [current_plan(one.model).model_dump(mode="json") for one in loaded],
        "temperatures": [temperature_of(one.model) for one in loaded],
        "data": [part.fingerprint for part in used],
        "conditions": [column.condition for column in columns],
        "seed": request.seed,
        "preprocessing": [network.preprocessing.model_dump(mode="json") for network in networks],
        "views": [inference.tta, inference.merge],
        "batch size": min(network.batch_size for network in networks),
        "device": [networks[0].device.type, networks[0].precision],
        "treatment of bad images": inference.skip_bad,
        **outputs_for_journal(networks),
    }
    return Journal(folder / JOURNAL, identity, request.overwrite, of="measurement of robustness")
