"""The header of a model card, which the hub reads, and the card's title: only what the record tells."""

from __future__ import annotations

import math

from huggingface_hub import EvalResult, ModelCardData

from surgeon.checkpoint.record import Surgery
from surgeon.core.errors import printable
from surgeon.core.media import Medium
from surgeon.models.history import DataKind, History
from surgeon.models.hub import hub_name
from surgeon.models.lineage import last_test, training_data
from surgeon.surgery.plainness import predicts_unconverted

TASKS = {Medium.IMAGE: "image-classification", Medium.SOUND: "audio-classification"}


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
    task = TASKS[surgery.preprocessing.medium if surgery.preprocessing is not None else Medium.IMAGE]
    results = _test_results(surgery.history, task)
    return ModelCardData(
        library_name=library,
        license=licence,
        base_model=hub_name(surgery.base_weights.origin),
        datasets=[data.hub for data in training_data(surgery.history) if data.hub is not None] or None,
        metrics=["accuracy"] if results else None,
        pipeline_tag=task,
        tags=["batch-normalization", "norm-surgeon"],
        model_name=title(folder, surgery) if results else None,
        eval_results=results or None,
    )


def _test_results(history: History, task: str) -> list[EvalResult]:
    """The accuracy of the network as it is, if it was tested on images that others know."""
    tested = last_test(history)
    accuracy = tested.figures.values.get("accuracy") if tested is not None else None
    if tested is None or accuracy is None or not math.isfinite(accuracy):
        return []
    data = tested.images.data
    if (name := data.hub or (data.name if data.kind is DataKind.BUNDLED else None)) is None:
        return []
    return [
        EvalResult(
            task_type=task,
            dataset_type=name,
            dataset_name=name,
            dataset_split=tested.images.split,
            metric_type="accuracy",
            metric_value=round(accuracy, 6),
        )
    ]
