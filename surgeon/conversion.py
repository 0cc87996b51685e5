"""The whole operation: open a network, plan, rewrite, prove that nothing else changed, save."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from surgeon import checkpoint
from surgeon.atomic import check_destination
from surgeon.errors import ExitCode, SurgeonError, count, listing
from surgeon.inserts import Effect
from surgeon.models.sources import BaseWeights, LoadedModel, Preprocessing, example_inputs
from surgeon.surgery import parity
from surgeon.surgery.apply import apply_plan, install_everywhere, surgical_layers
from surgeon.surgery.inserting import taken_out
from surgeon.surgery.plan import Insertion, Operation, Request, ResolvedPlan, inserts_among, resolve


class Conversion(BaseModel):
    """What a conversion did; the table, the JSON and the card say nothing else."""

    model_config = ConfigDict(frozen=True)

    model: str
    weights: BaseWeights
    preprocessing: Preprocessing | None
    rewrites: str
    operations: tuple[Operation, ...]
    insertions: tuple[Insertion, ...] = ()
    parameters_before: int
    parameters_after: int
    identity_difference: float | None = None
    """Largest relative difference from the original at the identity setting."""
    output_shift: float | None = None
    """Relative difference from the original at the chosen setting."""
    notes: tuple[str, ...] = ()
    output: str | None = None

    def changes(self) -> dict[tuple[str, str], int]:
        """How many layers of each kind became what."""
        return dict(Counter((o.source, ResolvedPlan(operations=(o,)).summary()) for o in self.operations))

    def additions(self) -> dict[tuple[str, str], int]:
        """How many units of each kind are put where."""
        firsts: dict[tuple[str, str], str] = {}
        counts: Counter[tuple[str, str]] = Counter()
        for insertion in self.insertions:
            key = ResolvedPlan(operations=(), insertions=(insertion,)).summary(), insertion.place
            firsts.setdefault(key, insertion.where)
            counts[key] += 1
        return {(unit, firsts[unit, place]): number for (unit, place), number in counts.items()}


def plan_conversion(
    loaded: LoadedModel, rewrites: Sequence[str], layers: str | None = None, inserts: Sequence[str] = ()
) -> Conversion:
    """What a conversion would do, without doing it."""
    requests, units = inserts_among(rewrites)
    units += [Request.parse(text) for text in inserts]
    plan = resolve(loaded.model, requests, units, layers, example_inputs(loaded.origin))
    parameters = sum(p.numel() for p in loaded.model.parameters())
    return Conversion(
        model=loaded.name,
        weights=loaded.origin.weights,
        preprocessing=loaded.origin.preprocessing,
        rewrites=plan.summary(),
        operations=plan.operations,
        insertions=plan.insertions,
        parameters_before=parameters,
        parameters_after=parameters,
        notes=loaded.origin.notes,
    )


def perform_conversion(
    loaded: LoadedModel, planned: Conversion, destination: Path, overwrite: bool = False
) -> Conversion:
    """Rewrite the network, compare it with itself before, and write the checkpoint."""
    check_destination(destination, overwrite)
    plan = ResolvedPlan(operations=planned.operations, insertions=planned.insertions)
    proof = rewrite(loaded, plan)
    weights = loaded.origin.weights
    checkpoint.save(
        loaded.model, destination, origin=loaded.origin, parity=proof.identity_difference, overwrite=overwrite
    )
    return planned.model_copy(
        update={
            "weights": weights,
            "parameters_after": sum(p.numel() for p in loaded.model.parameters()),
            "identity_difference": proof.identity_difference,
            "output_shift": proof.output_shift,
            "notes": (*planned.notes, *_plan_notes(plan), *proof.notes),
            "output": str(destination),
        }
    )


def rewrite(loaded: LoadedModel, plan: ResolvedPlan) -> Proof:
    """Rewrite a network in place, note which weights it had, and compare it with itself before."""
    inputs = example_inputs(loaded.origin)
    if (earlier := getattr(loaded.model, "surgery", None)) is not None:
        install_everywhere(loaded.model, earlier, at_identity=True)  # compare with the network before any surgery
    before = parity.evaluate_once(loaded.model, inputs) if inputs is not None else None
    base = loaded.origin.weights
    hashed = BaseWeights(origin=base.origin, sha256=base.sha256 or state_sha256(loaded.model))
    model = apply_plan(loaded.model, plan)
    whole: Any = model.surgery  # with what an earlier surgery did to other layers
    moving = [i for i in plan.insertions if i.effect is Effect.AT_ONCE]
    proof = _compare(model, whole, moving, before, inputs) if before is not None and inputs is not None else Proof()
    loaded.model = model
    loaded.origin = loaded.origin.model_copy(update={"weights": hashed})
    return proof


@dataclass(frozen=True)
class Proof:
    """How a converted network compares with the original."""

    identity_difference: float | None = None
    output_shift: float | None = None
    notes: tuple[str, ...] = ()


def _compare(
    model: nn.Module,
    plan: ResolvedPlan,
    moving: list[Insertion],
    before: list[Tensor],
    inputs: tuple[Any, ...],
) -> Proof:
    """`moving` units change predictions as soon as they are there: without them the network must be the original."""
    if not plan.has_identity():
        after, rows = _evaluate_watching_rows(model, inputs)
        shift = parity.relative_difference(after, before)
        return Proof(None, shift, tuple(_notes(after, rows, len(inputs[0]))))
    layers = surgical_layers(model)
    install_everywhere(model, plan, at_identity=True)
    identity = [dict(norm.rewrites) for norm in layers.values()]
    with taken_out(model, moving):
        after, rows = _evaluate_watching_rows(model, inputs)
    difference = parity.relative_difference(after, before)
    if not difference <= parity.TOLERANCE:
        raise SurgeonError(
            f"The converted network differs from the original by {difference:.2g} (relative) where both must be equal.",
            "Nothing was written. This is a bug in surgeon: please report it with the model's name.",
            ExitCode.VERIFICATION,
        )
    install_everywhere(model, plan)
    if moving or identity != [norm.rewrites for norm in layers.values()]:
        after = parity.evaluate_once(model, inputs)
    return Proof(difference, parity.relative_difference(after, before), tuple(_notes(after, rows, len(inputs[0]))))


def _evaluate_watching_rows(model: nn.Module, inputs: tuple[Any, ...]) -> tuple[list[Tensor], dict[str, int]]:
    """Outputs, and how many rows each rewritten layer was given."""
    rows: dict[str, int] = {}

    def watch(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        return lambda _, arguments: rows.__setitem__(name, len(arguments[0]))

    handles = [norm.register_forward_pre_hook(watch(name)) for name, norm in surgical_layers(model).items()]
    try:
        return parity.evaluate_once(model, inputs), rows
    finally:
        for handle in handles:
            handle.remove()


def _plan_notes(plan: ResolvedPlan) -> list[str]:
    """What a user who just typed the rewrite's name may not expect."""
    options = [(r.name, r.options) for operation in plan.operations for r in operation.rewrites]
    alphas = [o["alpha"] for name, o in options if name == "example-weighted"]
    notes = []
    if alphas and not any(alphas):
        notes.append("alpha is 0, so predictions stay as they are: set one, e.g. --bn example-weighted:alpha=0.05")
    if any(name == "batch-group" and o["channel_groups"] != "channels" for name, o in options):
        notes.append("batch-group changes predictions at once: train the network before you use it")
    if any(name == "mode-group" for name, _ in options):
        notes.append("mode-group has no setting at which it is the original network: train it before you use it")
    moving = dict.fromkeys(i.unit.name for i in plan.insertions if i.effect is Effect.AT_ONCE)
    notes += [f"{name} changes predictions at once: train the network before you use it" for name in moving]
    return notes


def _notes(outputs: list[Tensor], rows: dict[str, int], examples: int) -> list[str]:
    notes = []
    if not all(torch.isfinite(t).all() for t in outputs):
        notes.append("the outputs on random images are not finite")
    folded = [name for name, seen in rows.items() if seen != examples]
    if folded:
        notes.append(
            f"{count(len(folded), 'layer')} ({listing(folded, limit=2)}) see more rows than images: "
            "there, an example's own statistics are those of a row"
        )
    return notes


def state_sha256(model: nn.Module) -> str:
    """Hash of all weights and buffers by name, whatever file they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
