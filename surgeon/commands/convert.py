"""The `convert` command: open a network, plan, rewrite, prove that nothing else changed, save."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surgeon import checkpoint
from surgeon.inserts import Effect
from surgeon.models.history import Renamed
from surgeon.models.origin import LoadedModel
from surgeon.norms import norms
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
        renamed=next((step for step in loaded.origin.history if isinstance(step, Renamed)), None),
    )


def perform_conversion(
    loaded: LoadedModel, planned: Conversion, destination: Path, overwrite: bool = False
) -> Conversion:
    """Rewrite the network, compare it with itself before, and write the checkpoint."""
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
    configs: dict[str, list[Any]] = {}
    for operation in plan.operations:
        for planned in operation.rewrites:
            configs.setdefault(planned.name, []).append(planned.config())
    notes = [note for name, layers in configs.items() for note in norms[name].config.notes(layers)]
    moving = dict.fromkeys(i.unit.name for i in plan.insertions if i.effect is Effect.AT_ONCE)
    notes += [f"{name} changes predictions at once: train the network before you use it" for name in moving]
    return notes
