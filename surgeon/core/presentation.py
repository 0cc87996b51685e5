"""How a figure is shown: what it is called, what it is counted in, and with how many digits."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from surgeon.core.errors import SurgeonError

MISSING = "–"
NOT_FINITE = "not finite"
_FORMAT = re.compile(r",?(\.\d+)?[fge%]")


class Improvement(NamedTuple):
    """A difference with its 95% interval, such that positive is better."""

    by: float
    low: float
    high: float

    @classmethod
    def of(cls, difference: float, low: float, high: float, *, higher_is_better: bool) -> Improvement:
        return cls(difference, low, high) if higher_is_better else cls(-difference, -high, -low)


@dataclass(frozen=True)
class Presentation:
    """How the values of a metric, or of any other number, are written.

    Args:
        label: What to call it in a sentence or on an axis.
        heading: The same above a column, as short as can be.
        unit: What it is counted in, if that is worth saying: ms.
        format: Of its numbers, as Python writes it: `.4f`, `,.1f`, `.3g`. One with `%` is a share: it is shown in
            percent and its differences in points.
    """

    label: str
    heading: str
    unit: str = ""
    format: str = ".4f"

    def __post_init__(self) -> None:
        if not _FORMAT.fullmatch(self.format) or (self.is_share and self.unit):
            raise SurgeonError(
                f"The numbers of {self.label!r} cannot have the format {self.format!r} and the unit {self.unit!r}.",
                "Use a format such as .4f, ,.1f, .3g or .2%; a percentage takes no other unit.",
            )

    @property
    def is_share(self) -> bool:
        return self.format.endswith("%")

    @property
    def factor(self) -> int:
        """By which values are multiplied where an axis or a column says the unit."""
        return 100 if self.is_share else 1

    @property
    def suffix(self) -> str:
        """What follows a number."""
        return "%" if self.is_share else f" {self.unit}".rstrip()

    @property
    def difference_suffix(self) -> str:
        """What follows a difference."""
        return " points" if self.is_share else self.suffix

    @property
    def axis(self) -> str:
        """The label with the unit, as it stands at an axis or above a chart."""
        return f"{self.label} ({self.suffix.strip()})" if self.suffix else self.label

    def figure(self, value: float | None) -> str:
        """A value with its unit."""
        if value is None:
            return MISSING
        if not math.isfinite(value):
            return NOT_FINITE
        return f"{value:{self.format}}{'' if self.is_share else self.suffix}"

    def difference(self, value: float) -> str:
        """A difference between two values, with its sign and without its unit."""
        if not math.isfinite(value):
            return NOT_FINITE
        # `z`: what rounds to zero is no "-0.00".
        return f"{self.factor * value:+z{self.format.replace('%', 'f')}}"

    def interval(self, low: float, high: float) -> str:
        """The interval of a difference; that of a single image has no bounds."""
        if not (math.isfinite(low) and math.isfinite(high)):
            return "unbounded"
        return f"{self.difference(low)} to {self.difference(high)}"

    def improvement(self, found: Improvement) -> str:
        """`+0.26 points (95%: -0.10 to +0.62), not significant`."""
        if not math.isfinite(found.by):
            return NOT_FINITE
        noise = "" if found.low > 0 or found.high < 0 else ", not significant"
        return f"{self.difference(found.by)}{self.difference_suffix} (95%: {self.interval(*found[1:])}){noise}"


def plain(name: str) -> Presentation:
    """Of a number that is no registered metric."""
    return Presentation(label=name, heading=name)
