"""Whether a converted network could as well be the unconverted one, by its plan alone."""

from __future__ import annotations

from surgeon.inserts import Effect
from surgeon.layers.surgical import SurgicalNorm
from surgeon.norms import norms
from surgeon.surgery.plan import ResolvedPlan, Rewrite


def predicts_unconverted(plan: ResolvedPlan) -> bool:
    """Whether the unconverted network takes the weights as they are, and then predicts alike."""
    return (
        not any("GroupNorm" in operation.source for operation in plan.operations)  # it has got running statistics
        and all(_is_at_identity(rewrite) for operation in plan.operations for rewrite in operation.rewrites)
        and all(insertion.effect is Effect.NONE for insertion in plan.insertions)
    )


def _is_at_identity(rewrite: Rewrite) -> bool:
    variant = norms[rewrite.name]
    if variant.identity is None or variant.adds_state:
        return False
    return rewrite.config() == variant.configure({**rewrite.options, **variant.identity(SurgicalNorm(1))})
