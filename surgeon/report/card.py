"""The model card of a checkpoint: what it is, how to load it, where it came from."""

from __future__ import annotations

from collections import Counter

from surgeon.record import Surgery

_CARD = """\
---
library_name: {library}
tags:
- image-classification
- batch-normalization
- norm-surgeon
---
# {name}

`{architecture}` with rewritten normalisation layers: **{summary}**.

```python
import surgeon

model = surgeon.load("path/to/this/folder")
```

{plain_note}
{findings}
| | |
|---|---|
| base weights | {weights} |
| sha256 of the base weights | {sha256} |
| rewritten layers | {layers} |
| temperature | {temperature} |
| difference from the original at the identity setting | {parity} |
{preprocessing}

`surgeon verify path/to/this/folder` checks all of this again.
"""

_HAS_MORE_BUFFERS = (
    "The layers were GroupNorm, which has no running statistics: these are additional buffers, so the weights do not "
    "load into the unconverted network with `strict=True`."
)
_LOADS_PLAINLY = (
    "Parameters keep their original names: the weights also load into the unconverted network, "
    "which then predicts as the original did."
)


def model_card(name: str, surgery: Surgery, parity: float | None) -> str:
    """The card as Markdown with the hub's metadata."""
    source, images, plan = surgery.source, surgery.preprocessing, surgery.plan
    findings = "".join(f"- {sentence}\n" for sentence in surgery.findings)
    kinds = Counter(operation.source for operation in plan.operations)
    size = "x".join(map(str, images.input_size)) if images else ""
    return _CARD.format(
        name=name,
        library="timm" if source and source.library == "timm" else "norm-surgeon",
        architecture=f"{source.library}: {source.architecture}" if source else "a network of your own",
        summary=plan.summary() or "none",
        plain_note=_HAS_MORE_BUFFERS if any("GroupNorm" in kind for kind in kinds) else _LOADS_PLAINLY,
        weights=surgery.base_weights.origin,
        sha256=f"`{surgery.base_weights.sha256}`" if surgery.base_weights.sha256 else "not recorded",
        findings=f"\n{findings}" if findings else "",
        temperature=f"logits are divided by {surgery.temperature:.4f}" if surgery.temperature else "none",
        layers=", ".join(f"{number} {kind}" for kind, number in kinds.items()) or "none",
        parity="not measured" if parity is None else f"{parity:.1e} (relative)",
        preprocessing=f"| input | {size}, mean {images.mean}, std {images.std} |" if images else "",
    )
