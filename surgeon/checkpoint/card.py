"""Model cards: what a network is, how to load it, where it came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from surgeon.checkpoint import markdown
from surgeon.checkpoint.card_header import card_metadata, metadata_for, title
from surgeon.checkpoint.record import Surgery
from surgeon.checkpoint.sentences import in_sentences
from surgeon.core.errors import listing
from surgeon.models.history import History
from surgeon.models.lineage import is_fully_known, what_changed_weights
from surgeon.norms import norms
from surgeon.surgery.plan import ResolvedPlan

_CARD = """\
---
{metadata}
---
# {name}

{what}

```python
import surgeon  # of the package norm-surgeon
{loading}
```

{plain_note}
{history}
| | |
|---|---|
| base weights | {weights} |
| sha256 of the base weights | {sha256} |
| rewritten layers | {layers} |
{units}| temperature | {temperature} |
{preprocessing}

`surgeon verify {folder}` checks all of this again.
"""

_PLAIN_CARD = """\
---
{metadata}
---
# {name}

{network} as timm builds it, written by norm-surgeon{what}.

```python
import timm

model = timm.create_model("local-dir:{folder}", pretrained=True){or_on_the_hub}
```
{history}
| | |
|---|---|
| base weights | {weights} |
| sha256 of the base weights | {sha256} |
{preprocessing}
"""

_HAS_MORE_BUFFERS = (
    "The layers were GroupNorm, which has no running statistics: these are additional buffers, so the weights do not "
    "load into the unconverted network with `strict=True`."
)
_HAS_MORE_STATE = (
    "Parameters of the original keep their names, but {names} added others: the weights load into the unconverted "
    "network only with `strict=False`, which leaves the added ones out{consequence}."
)
_LOADS_PLAINLY = (
    "Parameters keep their original names: the weights also load into the unconverted network, "
    "which then predicts {how}."
)

_LOADING = '\nmodel = surgeon.load("{folder}"){or_on_the_hub}'
_LOADING_YOUR_OWN = """\
from your_code import build_network  # your function that builds the network as it was before surgery

model = surgeon.load("{folder}", build_network()){or_on_the_hub}"""

_FOLDER = "path/to/this/folder"
_OR_ON_THE_HUB = '  # or "hf-hub:OWNER/NAME", if it is on the hub'


def model_card(folder: str, surgery: Surgery, licence: str | None = None) -> str:
    """The card as Markdown with the hub's metadata; `licence` is that of the base weights, where it is known."""
    plan = surgery.plan
    kinds = Counter(operation.source for operation in plan.operations)
    loading = _LOADING if surgery.source else _LOADING_YOUR_OWN
    return _CARD.format(
        name=markdown.name(title(folder, surgery)),
        metadata=card_metadata(folder, surgery, licence).to_yaml(),
        what=_what(_network(surgery), plan),
        plain_note=_plain_note(plan, kinds, surgery.history),
        weights=markdown.name(surgery.base_weights.origin),
        sha256=_sha256(surgery),
        history=_list(in_sentences(surgery.history)),
        temperature=f"logits are divided by {surgery.temperature:.4f}" if surgery.temperature else "none",
        layers=", ".join(f"{number} {markdown.name(kind)}" for kind, number in kinds.items()) or "none",
        units=f"| inserted units | {units} |\n" if (units := _units(plan)) else "",
        preprocessing=_input(surgery),
        loading=loading.format(folder=_FOLDER, or_on_the_hub=_OR_ON_THE_HUB),
        folder=_FOLDER,
    )


def plain_card(folder: str, surgery: Surgery, licence: str | None = None) -> str:
    """The card of a network that was exported for timm alone."""
    return _PLAIN_CARD.format(
        name=markdown.name(title(folder, surgery)),
        metadata=metadata_for("timm", folder, surgery, licence).to_yaml(),
        network=_network(surgery),
        what=f": at inference it computes the same as with **{summary}**"
        if (summary := surgery.plan.summary())
        else "",
        weights=markdown.name(surgery.base_weights.origin),
        sha256=_sha256(surgery),
        history=_list(in_sentences(surgery.history)),
        preprocessing=_input(surgery),
        folder=_FOLDER,
        or_on_the_hub=_OR_ON_THE_HUB,
    )


def addressed(card: str, address: str) -> str:
    """A card as it reads at its address on the hub."""
    card = card.replace(_OR_ON_THE_HUB, "")
    return card.replace(f"local-dir:{_FOLDER}", address).replace(_FOLDER, address)


def _network(surgery: Surgery) -> str:
    source = surgery.source
    return markdown.code(f"{source.library}: {source.architecture}") if source else "A custom network"


def _sha256(surgery: Surgery) -> str:
    return markdown.code(surgery.base_weights.sha256) if surgery.base_weights.sha256 else "not recorded"


def _list(texts: Sequence[str]) -> str:
    entries = "".join(f"- {markdown.sentence(text)}\n" for text in texts)
    return f"\n{entries}" if entries else ""


def _input(surgery: Surgery) -> str:
    if (images := surgery.preprocessing) is None:
        return ""
    made_of = "" if images.sound is None else f"{images.sound.text}, as "
    return f"| input | {made_of}{'x'.join(map(str, images.input_size))}, mean {images.mean}, std {images.std} |"


def _what(network: str, plan: ResolvedPlan) -> str:
    """The network in a sentence."""
    parts = ["rewritten normalisation layers"] if plan.operations else []
    parts += ["inserted units"] if plan.insertions else []
    return f"{network} with {' and '.join(parts)}: **{plan.summary()}**." if parts else f"{network}, without rewrites."


def _units(plan: ResolvedPlan) -> str:
    kinds = Counter(insertion.unit.name for insertion in plan.insertions)
    return ", ".join(f"{number} {kind}" for kind, number in kinds.items())


def _plain_note(plan: ResolvedPlan, kinds: Counter[str], history: History) -> str:
    """What becomes of the weights in the unconverted network."""
    if any("GroupNorm" in kind for kind in kinds):
        return _HAS_MORE_BUFFERS
    names = dict.fromkeys(r.name for operation in plan.operations for r in operation.rewrites)
    added = [name for name in names if norms[name].adds_state]
    away = any(norms[name].trains_away for name in added)
    learning = list(dict.fromkeys(i.unit.name for i in plan.insertions if i.unit.variant().learns))
    added, away = [*added, *learning], away or bool(learning)
    if not added:
        return _LOADS_PLAINLY.format(how=_how_unconverted(history))
    consequence = ": after training it then predicts differently" if away else " and predicts as the main branch does"
    return _HAS_MORE_STATE.format(names=listing(f"`{name}`" for name in added), consequence=consequence)


def _how_unconverted(history: History) -> str:
    """How the weights predict in the unconverted network: as the original did only if nothing has changed them."""
    if changed := what_changed_weights(history):
        return f"with the {listing(changed)} weights"
    return "as the original did" if is_fully_known(history) else "without the rewrites"
