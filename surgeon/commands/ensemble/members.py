"""Members that can predict together: the same classes, whatever the architecture and the preprocessing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from surgeon import checkpoint
from surgeon.core.errors import SurgeonError, count
from surgeon.layers.running import evaluate_once
from surgeon.models.hub import NoWeightsError
from surgeon.models.origin import LoadedModel
from surgeon.models.sources import example_inputs


def open_members(names: Sequence[str]) -> list[LoadedModel]:
    """All networks, with the same classes."""
    members = [_open(name) for name in names]
    check_same_classes(members)
    return members


def _open(name: str) -> LoadedModel:
    try:
        return checkpoint.open_model(name)
    except SurgeonError as error:
        # Members have no option that would name a file of weights.
        hint = "Pass a checkpoint folder." if isinstance(error, NoWeightsError) else error.hint
        raise SurgeonError(f"{name}: {error.message}", hint, error.exit_code) from error


def check_same_classes(members: Sequence[LoadedModel]) -> None:
    """Refuse members whose outputs mean different things."""
    outputs = [_outputs(member) for member in members]
    for (first, ours), (second, theirs) in pairwise(zip(members, outputs, strict=True)):
        if ours is not None and theirs is not None and ours != theirs:
            raise SurgeonError(
                f"{first.name} has {count(ours, 'output')}, but {second.name} has {theirs:,}.",
                "Members of an ensemble predict the same classes.",
            )
    named = [(member, names) for member in members if (names := member.class_names) is not None]
    for (first, our_names), (second, their_names) in pairwise(named):
        for number, (mine, yours) in enumerate(zip(our_names, their_names, strict=False)):
            if mine != yours:
                raise SurgeonError(
                    f"Class {number} is {mine!r} for {first.name}, but {yours!r} for {second.name}.",
                    "Members of an ensemble predict the same classes in the same order.",
                )


def _outputs(member: LoadedModel) -> int | None:
    """How many numbers a network gives for an image; None if it is not known what images it takes."""
    inputs = example_inputs(member.origin, examples=1)
    if inputs is None:
        return None
    answer = evaluate_once(member.model, inputs)[0]
    return answer.shape[1 if answer.dim() == 4 else -1]  # of masks, the classes come before the pixels
