"""What `inspect --data` finds out about images."""

from __future__ import annotations

from pydantic import Field

from surgeon.models.origin import Preprocessing
from surgeon.results.base import Result
from surgeon.surgery.gates import GateUsage
from surgeon.surgery.shift import Shift


class DataShift(Result):
    """How far images are from what a network's stored statistics describe, and how its gates divide them."""

    model: str
    data: str
    split: str
    images: int
    preprocessing: Preprocessing
    shift: Shift | None
    """None if no layer normalises by stored statistics."""
    gates: dict[str, GateUsage] = Field(default_factory=dict)
    """By layer; empty if none has gates."""
    bad_images: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
