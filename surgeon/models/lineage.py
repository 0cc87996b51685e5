"""What a network's history tells of it: what it was trained on, whether its test figures still hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from surgeon.models.facts import DataSet
from surgeon.models.history import (
    Averaged,
    Converted,
    Earlier,
    Exported,
    FineTuned,
    Merged,
    Recalibrated,
    Renamed,
    Saved,
    Step,
    Swept,
    TemperatureFitted,
    Tested,
)


def all_steps(history: Iterable[Step]) -> Iterator[Step]:
    """Every step, those of averaged members before the average."""
    for step in history:
        if isinstance(step, Averaged):
            for member in step.members:
                yield from all_steps(member.history)
        yield step


def training_data(history: Iterable[Step]) -> tuple[DataSet, ...]:
    """What the weights were fine-tuned on, each data set once, the latest last."""
    found = [step.data for step in all_steps(history) if isinstance(step, FineTuned)]
    return tuple(reversed(dict.fromkeys(reversed(found))))


def what_changed_weights(history: Iterable[Step]) -> tuple[str, ...]:
    """How the weights came to differ from those that the network had before surgery, by the names of the steps."""
    kinds = (step.kind for step in all_steps(history) if isinstance(step, FineTuned | Averaged | Merged | Recalibrated))
    return tuple(dict.fromkeys(kinds))


def is_fully_known(history: Iterable[Step]) -> bool:
    """Whether the steps are all that was done: not after somebody's program, or a record without a history."""
    return not any(isinstance(step, Earlier | Saved) for step in all_steps(history))


def last_test(history: Iterable[Step]) -> Tested | None:
    """The test figures of the network as it is: none if something has changed its predicted classes since."""
    found = None
    for step in history:
        if isinstance(step, Tested):
            found = step
        elif not _keeps_classes(step):
            found = None
    return found


def _keeps_classes(step: Step) -> bool:
    """Whether the network predicts the same classes after a step as before it."""
    if isinstance(step, Swept):
        return not step.changed
    if isinstance(step, Converted):
        return step.output_shift == 0
    return isinstance(step, Renamed | TemperatureFitted | Exported)


def common_start(histories: Iterable[tuple[Step, ...]]) -> tuple[Step, ...]:
    """The steps with which all histories begin."""
    first, *others = histories
    number = 0
    while all(len(one) > number and one[number] == first[number] for one in (first, *others)):
        number += 1
    return first[:number]
