"""Splits by their names: which one is meant, and what to say if it is not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from surgeon.core.errors import SurgeonError, listing

VALIDATION_NAMES = ("validation", "val", "valid", "dev")
WHOLE = "all"  # the split of a source that has none


class MissingSplitError(SurgeonError):
    """A data set does not have the split that is asked for.

    Args:
        message: What is missing.
        splits: Those that there are; none if the data are not divided.
    """

    def __init__(self, message: str, splits: Sequence[str]) -> None:
        self.splits = tuple(splits)
        super().__init__(message, self.hint_for("--split"))

    def hint_for(self, option: str) -> str:
        """What to do with the option by which the split was asked for."""
        return f"Pass {option} with one of: {listing(self.splits)}." if self.splits else f"Leave {option} out."


def choose_split(wanted: str | None, existing: Iterable[str], name: str) -> str:
    """The existing split that is meant: `val`, `valid`, `validation` and `dev` are the same."""
    splits = list(existing)
    if wanted is None:
        candidates = ["test", *VALIDATION_NAMES, *(splits if len(splits) == 1 else [])]
    else:
        candidates = [wanted, *(VALIDATION_NAMES if wanted in VALIDATION_NAMES else [])]
    for candidate in candidates:
        if candidate in splits:
            return candidate
    if splits == [WHOLE]:
        raise MissingSplitError(f"{name!r} has no splits, so there is no {wanted!r}.", ())
    problem = f"There is no split {wanted!r} in {name!r}" if wanted else f"{name!r} has no test or validation split"
    raise MissingSplitError(f"{problem}.", splits)
