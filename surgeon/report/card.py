"""The model card of a checkpoint: what it is, how to load it, where it came from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from huggingface_hub import EvalResult, ModelCardData

from surgeon.data.presets import PRESETS
from surgeon.errors import listing
from surgeon.models.hub import hub_name
from surgeon.norms import norms
from surgeon.record import Surgery
from surgeon.surgery.plan import ResolvedPlan

_CARD = """\
---
{metadata}
---
# {name}

{what}

```python
import surgeon  # of the package norm-surgeon

model = surgeon.load("path/to/this/folder")  # or "hf-hub:OWNER/NAME", if that is where it is
```

{plain_note}
{findings}
| | |
|---|---|
| base weights | {weights} |
| sha256 of the base weights | {sha256} |
| rewritten layers | {layers} |
{units}| temperature | {temperature} |
{parity}{preprocessing}

`surgeon verify path/to/this/folder` checks all of this again.
"""

_HAS_MORE_BUFFERS = (
    "The layers were GroupNorm, which has no running statistics: these are additional buffers, so the weights do not "
    "load into the unconverted network with `strict=True`."
)
_HAS_MORE_STATE = (
    "Parameters of the original keep their names, but {names} added others: the weights load into the unconverted "
    "network only with `strict=False`, which leaves the added ones out{consequence}."
)
_DIFFERENCE = "difference from the original at the identity setting"
_LOADS_PLAINLY = (
    "Parameters keep their original names: the weights also load into the unconverted network, "
    "which then predicts {how}."
)

# Sentences that fine-tuning leaves in the record (surgeon/training/operation.py).
_TRAINED_ON = re.compile(r"Fine-tuned on (?P<data>.+): [\d,]+ images?\.")
_TESTED = re.compile(r"Test: (?P<percent>[\d.]+)% of [\d,]+ images?\.")


def model_card(name: str, surgery: Surgery, parity: float | None, licence: str | None = None) -> str:
    """The card as Markdown with the hub's metadata; `licence` is that of the base weights, where it is known."""
    source, images, plan = surgery.source, surgery.preprocessing, surgery.plan
    findings = "".join(f"- {sentence}\n" for sentence in surgery.findings)
    kinds = Counter(operation.source for operation in plan.operations)
    size = "x".join(map(str, images.input_size)) if images else ""
    return _CARD.format(
        name=name,
        metadata=card_metadata(name, surgery, licence).to_yaml(),
        what=_what(f"`{source.library}: {source.architecture}`" if source else "A network of one's own", plan),
        plain_note=_plain_note(plan, kinds, any("ine-tuned on " in sentence for sentence in surgery.findings)),
        weights=surgery.base_weights.origin,
        sha256=f"`{surgery.base_weights.sha256}`" if surgery.base_weights.sha256 else "not recorded",
        findings=f"\n{findings}" if findings else "",
        temperature=f"logits are divided by {surgery.temperature:.4f}" if surgery.temperature else "none",
        layers=", ".join(f"{number} {kind}" for kind, number in kinds.items()) or "none",
        units=f"| inserted units | {units} |\n" if (units := _units(plan)) else "",
        parity="" if parity is None else f"| {_DIFFERENCE} | {parity:.1e} (relative) |\n",
        preprocessing=f"| input | {size}, mean {images.mean}, std {images.std} |" if images else "",
    )


def card_metadata(name: str, surgery: Surgery, licence: str | None = None) -> ModelCardData:
    """The card's header: only what the record tells."""
    source, origin = surgery.source, surgery.base_weights.origin
    trained = _training_data(surgery.findings)
    results = _test_results(surgery.findings)
    return ModelCardData(
        library_name="timm" if source and source.library == "timm" else "norm-surgeon",
        license=licence,
        base_model=hub_name(origin),
        datasets=[trained] if trained and "/" in trained else None,
        metrics=["accuracy"] if results else None,
        pipeline_tag="image-classification",
        tags=["batch-normalization", "norm-surgeon"],
        model_name=name if results else None,
        eval_results=results or None,
    )


def _training_data(findings: Sequence[str]) -> str | None:
    """What fine-tuning learned from, by its name on the hub or in surgeon; None for files of one's own."""
    for sentence in findings:
        if found := _TRAINED_ON.match(sentence):
            data = found["data"]
            if data in PRESETS:
                return PRESETS[data].hub
            if data.startswith("hf:"):
                return data.split(":")[1]
            return data if data == "digits" else None
    return None


def _test_results(findings: Sequence[str]) -> list[EvalResult]:
    """The accuracy on test images that fine-tuning has measured, if it is known on which."""
    data = _training_data(findings)
    tested = next(filter(None, map(_TESTED.match, findings)), None)
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


def _what(network: str, plan: ResolvedPlan) -> str:
    """The network in a sentence."""
    parts = ["rewritten normalisation layers"] if plan.operations else []
    parts += ["inserted units"] if plan.insertions else []
    return f"{network} with {' and '.join(parts)}: **{plan.summary()}**." if parts else f"{network}, without rewrites."


def _units(plan: ResolvedPlan) -> str:
    kinds = Counter(insertion.unit.name for insertion in plan.insertions)
    return ", ".join(f"{number} {kind}" for kind, number in kinds.items())


def _plain_note(plan: ResolvedPlan, kinds: Counter[str], trained: bool) -> str:
    """What becomes of the weights in the unconverted network."""
    if any("GroupNorm" in kind for kind in kinds):
        return _HAS_MORE_BUFFERS
    names = dict.fromkeys(r.name for operation in plan.operations for r in operation.rewrites)
    added = [name for name in names if norms[name].adds_state]
    away = any(norms[name].trains_away for name in added)
    learning = list(dict.fromkeys(i.unit.name for i in plan.insertions if i.unit.variant().learns))
    added, away = [*added, *learning], away or bool(learning)
    if not added:
        return _LOADS_PLAINLY.format(how="as the layers were trained" if trained else "as the original did")
    consequence = ": once trained, it then predicts otherwise" if away else " and predicts as the main branch does"
    return _HAS_MORE_STATE.format(names=listing(f"`{name}`" for name in added), consequence=consequence)
