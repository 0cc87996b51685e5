"""The header of a model card, which the hub reads, and the card's title: only what the record tells."""

from __future__ import annotations

import math

from huggingface_hub import EvalResult, ModelCardData

from surgeon.checkpoint.record import Surgery
from surgeon.core.errors import printable
from surgeon.core.media import Medium
from surgeon.models.facts import DataKind
from surgeon.models.hub import hub_name
from surgeon.models.lineage import last_test, training_data
from surgeon.models.origin import Origin
from surgeon.problems import SEGMENTATION, Problem, problem_of
from surgeon.surgery.plainness import predicts_unconverted

OF_SOUND = "audio-classification"
HUB_METRICS = {"accuracy": "accuracy", "iou": "mean_iou"}
"""As the hub calls them."""


def title(folder: str, surgery: Surgery) -> str:
    """The network's name and what it was trained on; that of the folder if only its owner can build it."""
    source, origin = surgery.source, surgery.base_weights.origin
    if source is None:
        return printable(folder)
    network = origin if hub_name(origin) == f"timm/{origin}" else source.architecture
    trained = training_data(surgery.history)
    return printable(f"{network}, fine-tuned on {trained[-1].name}" if trained else network)


def card_metadata(folder: str, surgery: Surgery, licence: str | None = None) -> ModelCardData:
    """Of a checkpoint's card."""
    return metadata_for("timm" if _is_plain(surgery) else "norm-surgeon", folder, surgery, licence)


def _is_plain(surgery: Surgery) -> bool:
    """Whether timm makes the same network of the checkpoint, which it opens without a word either way."""
    return (
        surgery.source is not None
        and surgery.source.library == "timm"
        and surgery.mix is None
        and surgery.temperature in (None, 1)
        and predicts_unconverted(surgery.plan)
    )


def metadata_for(library: str, folder: str, surgery: Surgery, licence: str | None) -> ModelCardData:
    """Of the card of a network that is loaded with a library."""
    results = _test_results(surgery)
    return ModelCardData(
        library_name=library,
        license=licence,
        base_model=hub_name(surgery.base_weights.origin),
        datasets=[data.hub for data in training_data(surgery.history) if data.hub is not None] or None,
        metrics=[HUB_METRICS[judged_by(surgery)]] if results else None,
        pipeline_tag=task_of(surgery),
        tags=["batch-normalization", "norm-surgeon"],
        model_name=title(folder, surgery) if results else None,
        eval_results=results or None,
    )


def problem_of_record(surgery: Surgery) -> Problem:
    """What the network does: segment, if it is one that does or was tested so."""
    tested = last_test(surgery.history)
    of_masks = tested is not None and SEGMENTATION.default_metric in tested.figures.values
    return SEGMENTATION if of_masks else problem_of(Origin(source=surgery.source), None)


def task_of(surgery: Surgery) -> str:
    """What the network does, as the hub calls it."""
    hears = surgery.preprocessing is not None and surgery.preprocessing.medium is Medium.SOUND
    return OF_SOUND if hears else problem_of_record(surgery).task


def judged_by(surgery: Surgery) -> str:
    """The metric that the card tells of."""
    return problem_of_record(surgery).default_metric


def _test_results(surgery: Surgery) -> list[EvalResult]:
    """How good the network is as it is, if it was tested on images that others know."""
    tested, metric = last_test(surgery.history), judged_by(surgery)
    accuracy = tested.figures.values.get(metric) if tested is not None else None
    if tested is None or accuracy is None or not math.isfinite(accuracy):
        return []
    data = tested.images.data
    if (name := data.hub or (data.name if data.kind is DataKind.BUNDLED else None)) is None:
        return []
    return [
        EvalResult(
            task_type=task_of(surgery),
            dataset_type=name,
            dataset_name=name,
            dataset_split=tested.images.split,
            metric_type=HUB_METRICS[metric],
            metric_value=round(accuracy, 6),
        )
    ]
