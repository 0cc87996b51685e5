"""Plan and do the rewriting of an opened network, and prove that it is still the original where it must be."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from surgeon.core.errors import ExitCode, SurgeonError, count, listing
from surgeon.inserts import Effect
from surgeon.layers.running import evaluate_once
from surgeon.layers.surgical import surgical_layers
from surgeon.models.history import Converted
from surgeon.models.origin import BaseWeights, LoadedModel
from surgeon.models.sources import example_inputs
from surgeon.surgery import parity
from surgeon.surgery.apply import apply_plan, install_everywhere
from surgeon.surgery.inserting import taken_out
from surgeon.surgery.plan import Insertion, ResolvedPlan, RewriteRequest, inserts_among, resolve
from surgeon.surgery.references import refusing_replaced_layers


def plan_surgery(
    loaded: LoadedModel, rewrites: Sequence[str], layers: str | None = None, inserts: Sequence[str] = ()
) -> ResolvedPlan:
    """What the given specs would do to a network, layer by layer."""
    requests, units = inserts_among(rewrites)
    units += [RewriteRequest.parse(text) for text in inserts]
    return resolve(loaded.model, requests, units, layers, example_inputs(loaded.origin))


def rewrite(loaded: LoadedModel, plan: ResolvedPlan) -> Proof:
    """Rewrite a network in place, note which weights it had, and compare it with itself before."""
    inputs = example_inputs(loaded.origin)
    if (earlier := getattr(loaded.model, "surgery", None)) is not None:
        install_everywhere(loaded.model, earlier, at_identity=True)  # compare with the network before any surgery
    before = evaluate_once(loaded.model, inputs) if inputs is not None else None
    base = loaded.origin.weights
    hashed = BaseWeights(origin=base.origin, sha256=base.sha256 or state_sha256(loaded.model))
    model = apply_plan(loaded.model, plan)
    whole: Any = model.surgery  # with what an earlier surgery did to other layers
    moving = [i for i in plan.insertions if i.effect is Effect.AT_ONCE]
    proof = _compare(model, whole, moving, before, inputs) if before is not None and inputs is not None else Proof()
    loaded.model = model
    loaded.origin = loaded.origin.model_copy(update={"weights": hashed})
    loaded.note(converted(plan, proof))
    return proof


def converted(plan: ResolvedPlan, proof: Proof) -> Converted:
    """What a rewriting adds to the history of a network."""
    return Converted(
        rewrites=plan.summary(),
        layers=len(plan.operations),
        units=len(plan.insertions),
        identity_difference=proof.identity_difference,
        output_shift=proof.output_shift,
    )


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
        after = evaluate_once(model, inputs)
    return Proof(difference, parity.relative_difference(after, before), tuple(_notes(after, rows, len(inputs[0]))))


def _evaluate_watching_rows(model: nn.Module, inputs: tuple[Any, ...]) -> tuple[list[Tensor], dict[str, int]]:
    """Outputs, and how many rows each rewritten layer was given."""
    rows: dict[str, int] = {}

    def watch(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        return lambda _, arguments: rows.__setitem__(name, len(arguments[0]))

    handles = [norm.register_forward_pre_hook(watch(name)) for name, norm in surgical_layers(model).items()]
    try:
        with refusing_replaced_layers(model, surgical_layers(model)):
            return evaluate_once(model, inputs), rows
    finally:
        for handle in handles:
            handle.remove()


def _notes(outputs: list[Tensor], rows: dict[str, int], examples: int) -> list[str]:
    notes = []
    if not all(torch.isfinite(t).all() for t in outputs):
        notes.append("the outputs on random images are not finite")
    folded = [name for name, seen in rows.items() if seen != examples]
    if folded:
        notes.append(
            f"{count(len(folded), 'layer')} ({listing(folded, limit=2)}) get more rows than "
            "images, so their statistics per example are those of a row"
        )
    return notes


def state_sha256(model: nn.Module) -> str:
    """Hash of all weights and buffers by name, whatever file they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
