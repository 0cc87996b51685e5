"""The `convert` command: open a network, plan, rewrite, prove that nothing else changed, save."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from surgeon import checkpoint
from surgeon.core.atomic import check_destination
from surgeon.inserts import Effect
from surgeon.models.sources import LoadedModel
from surgeon.results.conversion import Conversion
from surgeon.surgery.plan import ResolvedPlan
from surgeon.surgery.proof import plan_surgery, rewrite


def plan_conversion(
    loaded: LoadedModel, rewrites: Sequence[str], layers: str | None = None, inserts: Sequence[str] = ()
) -> Conversion:
    """What a conversion would do, without doing it."""
    plan = plan_surgery(loaded, rewrites, layers, inserts)
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
    checkpoint.save_checkpoint(loaded, destination, overwrite=overwrite)
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
