"""What `convert` did."""

from __future__ import annotations

from collections import Counter

from pydantic import BaseModel, ConfigDict

from surgeon.core.readable import Readable
from surgeon.models.history import Renamed
from surgeon.models.origin import BaseWeights, Preprocessing
from surgeon.surgery.plan import Insertion, Operation, ResolvedPlan


class Conversion(Readable, BaseModel):
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
    renamed: Renamed | None = None
    """How the names in the weights file became the network's, if they had others."""
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
