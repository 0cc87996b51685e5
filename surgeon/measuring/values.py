"""Values to sweep as people write them: `0:0.2:21` (from, to, how many) or `0,0.01,0.05`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from surgeon.core.errors import SurgeonError, count

MOST_VALUES = 1001
FORMS = f"Write FROM:TO:COUNT, e.g. 0:0.2:21, or single values: 0,0.01,0.05; at most {MOST_VALUES:,} of them."


UNIT = (0.0, 1.0)
MOST_IMAGES = 1e12
INFINITE = ("inf", "infinity")


def parse_values(text: str, option: str, within: tuple[float, float] | None = UNIT) -> tuple[float, ...]:
    """The swept values in ascending order, each once."""
    try:
        if ":" in text:
            first, last, number = text.split(":")
            values = evenly_spaced(float(first), float(last), int(number))
        else:
            values = [float(part) for part in text.split(",")]
    except ValueError:
        raise SurgeonError(f"{option} cannot be {text!r}.", FORMS) from None
    return checked(values, option, within)


def parse_priors(text: str, option: str) -> tuple[float, ...]:
    """Numbers of images in ascending order, each once; `inf` is one too."""
    parts = [part.strip() for part in text.split(",")]
    finite = [part for part in parts if part.lower() not in INFINITE]
    try:
        values = parse_values(",".join(finite), option, (0.0, MOST_IMAGES)) if finite else ()
    except SurgeonError as error:
        raise SurgeonError(error.message, "Write numbers of images, e.g. 0,16,64,256,1024,inf.") from None
    return (*values, math.inf) if len(finite) < len(parts) else values


def evenly_spaced(first: float, last: float, number: int) -> list[float]:
    """Values with the few digits that people expect: 0.15, not 0.15000000000000002."""
    if not 1 <= number <= MOST_VALUES:
        raise ValueError(number)
    steps = max(number - 1, 1)  # between both ends, so that the last value is `last` to the bit
    return [float(f"{(first * (steps - index) + last * index) / steps:.10g}") for index in range(number)]


def checked(values: Iterable[float], option: str, within: tuple[float, float] | None = UNIT) -> tuple[float, ...]:
    """The values in ascending order, each once; all of them weights between 0 and 1, or within other bounds.

    Without bounds infinity is a value as well: whatever is swept says itself what it can be.
    """
    ascending = tuple(sorted({float(value) + 0.0 for value in values}))
    if not 1 <= len(ascending) <= MOST_VALUES:
        raise SurgeonError(f"{option} names {count(len(ascending), 'value')}.", FORMS)
    low, high = within or (-math.inf, math.inf)
    wrong = [value for value in ascending if not low <= value <= high]
    if wrong:
        bounds = f"lie between {low:g} and {high:g}" if within else "be a number"
        raise SurgeonError(f"{option} cannot be {wrong[0]:g}: it must {bounds}.", FORMS)
    return ascending
