"""What a sweep tries, as people write it: `--alpha`, `--lambda`, or any sweepable option of a rewrite."""

from __future__ import annotations

from dataclasses import dataclass

from surgeon.core.errors import SurgeonError, listing
from surgeon.measuring.values import evenly_spaced, parse_values
from surgeon.norms import norms

ALPHA = "example-weighted"
"""The rewrite that `--alpha` is about, which a network without an alpha is given first."""

USUAL_VALUES = 11


@dataclass(frozen=True)
class Swept:
    """An option of a rewrite, and the values to try."""

    rewrite: str
    option: str
    values: tuple[float, ...]

    @property
    def axis(self) -> str:
        return f"{self.rewrite}.{self.option}"

    @classmethod
    def parse(cls, text: str) -> Swept:
        """`REWRITE.OPTION=VALUES`; without values, some from the range that the option names as usual."""
        axis, _, written = text.partition("=")
        rewrite, _, option = axis.strip().partition(".")
        ranges = sweepable(rewrite)
        if option not in ranges:
            raise SurgeonError(
                f"--sweep cannot try {axis!r}: the rewrite {rewrite!r} has no such option to sweep.",
                f"It has {listing(f'{rewrite}.{name}' for name in ranges)}."
                if ranges
                else "None of its options can be.",
            )
        values = parse_values(written, "--sweep", None) if written else evenly_spaced(*ranges[option], USUAL_VALUES)
        for value in values:
            norms[rewrite].configure({option: value})  # refuse now what it cannot be
        return cls(rewrite, option, tuple(values))


def sweepable(rewrite: str) -> dict[str, tuple[float, float]]:
    """The options of a rewrite that can be tuned without retraining, each with its usual range."""
    fields = norms[rewrite].config.model_fields
    extras = {name: field.json_schema_extra for name, field in fields.items()}
    return {name: tuple(extra["sweep"]) for name, extra in extras.items() if isinstance(extra, dict)}  # type: ignore[arg-type, misc]
