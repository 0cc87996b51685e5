"""What a sweep tries, as people write it: `--alpha`, `--lambda`, or any sweepable option of a rewrite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surgeon.commands.listing import sweepable
from surgeon.core.errors import SurgeonError, did_you_mean, listing
from surgeon.measuring.values import evenly_spaced, parse_values
from surgeon.norms import norms

ALPHA = "example-weighted"
"""The rewrite that `--alpha` is about, which a network without an alpha is given first."""

ALPHA_AXIS, LAMBDA_AXIS, PRIOR_AXIS = "alpha", "lambda", "prior"
USUAL_VALUES = 11
MOST_AXES = 2


@dataclass(frozen=True)
class Swept:
    """An axis of a sweep, and the values to try."""

    axis: str
    values: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Swept:
        """`REWRITE.OPTION=VALUES`; without values, some from the range that the option names as usual."""
        axis, _, written = (part.strip() for part in text.partition("="))
        ranges = sweepable()
        if axis not in ranges:
            known = did_you_mean(axis, ranges) or f"What can: {listing(ranges)}."
            raise SurgeonError(f"--sweep cannot try {axis!r}: no option of that name can be swept.", known)
        values = parse_values(written, "--sweep", None) if written else evenly_spaced(*ranges[axis], USUAL_VALUES)
        rewrite, _, option = axis.partition(".")
        for value in values:
            norms[rewrite].configure({option: value})  # refuse now what it cannot be
        return cls(ALPHA_AXIS if axis == f"{ALPHA}.alpha" else axis, tuple(values))


def check_axes(axes: Sequence[Swept]) -> None:
    """Refuse what cannot be swept together."""
    names = [swept.axis for swept in axes]
    if len(names) > MOST_AXES:
        raise SurgeonError(f"{listing(names)} cannot be swept together: {MOST_AXES} axes can.", "Leave some out.")
    if len(set(names)) < len(names):
        raise SurgeonError(f"{names[0]} is swept twice.", "Write all of its values into one list.")
