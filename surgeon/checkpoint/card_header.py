"""The header of a model card, which the hub reads, and the card's title: only what the record tells."""

from __future__ import annotations

import re
from collections.abc import Sequence

from huggingface_hub import EvalResult, ModelCardData

from surgeon.checkpoint.record import Surgery
from surgeon.core.errors import printable
from surgeon.data.presets import PRESETS
from surgeon.models.hub import hub_name
from surgeon.surgery.plainness import predicts_unconverted

# Sentences that fine-tuning leaves in the record (surgeon/commands/finetune/finishing.py).
_TRAINED_ON = re.compile(r"Fine-tuned on (?P<data>.+): [\d,]+ images?\.")
_ON_THE_HUB = re.compile(r"hf:(?P<name>(?:[\w.-]+/)?[\w.-]+)(?::\S+)?")
_TESTED = re.compile(r"Test: (?P<percent>[\d.]+)% of [\d,]+ images?\.")


def title(folder: str, surgery: Surgery) -> str:
    """The network's name and what it was trained on; that of the folder if only its owner can build it."""
    source, origin = surgery.source, surgery.base_weights.origin
    if source is None:
        return printable(folder)
    network = origin if hub_name(origin) == f"timm/{origin}" else source.architecture
    trained = next(filter(None, map(_TRAINED_ON.fullmatch, surgery.findings)), None)
    return printable(f"{network}, fine-tuned on {trained['data'].removeprefix('hf:')}" if trained else network)


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
    trained = _training_data(surgery.findings)
    results = _test_results(surgery.findings)
    return ModelCardData(
        library_name=library,
        license=licence,
        base_model=hub_name(surgery.base_weights.origin),
        datasets=[trained] if trained and "/" in trained else None,
        metrics=["accuracy"] if results else None,
        pipeline_tag="image-classification",
        tags=["batch-normalization", "norm-surgeon"],
        model_name=title(folder, surgery) if results else None,
        eval_results=results or None,
    )


def _training_data(findings: Sequence[str]) -> str | None:
    """What fine-tuning learned from, by its name on the hub or in surgeon; None for files of one's own."""
    for sentence in findings:
        if found := _TRAINED_ON.fullmatch(sentence):
            data = found["data"]
            if data in PRESETS:
                return PRESETS[data].hub
            if on_the_hub := _ON_THE_HUB.fullmatch(data):
                return on_the_hub["name"]
            return data if data == "digits" else None
    return None


def _test_results(findings: Sequence[str]) -> list[EvalResult]:
    """The accuracy on test images that fine-tuning has measured, if it is known on which."""
    data = _training_data(findings)
    tested = next(filter(None, map(_TESTED.fullmatch, findings)), None)
    if data is None or tested is None:
        return []
    return [
        EvalResult(
            task_type="image-classification",
            dataset_type=data,
            dataset_name=data,
            dataset_split="test",
            metric_type="accuracy",
            metric_value=round(float(tested["percent"]) / 100, 6),
        )
    ]
