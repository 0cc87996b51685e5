"""The average of several networks' weights: one network, at the price of one.

Wortsman et al., "Model soups", ICML 2022. It takes members that were trained from the same start; of
others the average is no network at all, which the figures then show.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from surgeon.core.errors import SurgeonError, listing
from surgeon.models.lineage import common_start
from surgeon.models.origin import BaseWeights, LoadedModel
from surgeon.surgery.apply import current_plan
from surgeon.surgery.branches import mix_of
from surgeon.surgery.temperature import set_temperature, temperature_of


def check_alike(members: Sequence[LoadedModel]) -> None:
    """Refuse to average networks that are not the same but for their weights, naming the first difference."""
    first = members[0]
    for other in members[1:]:
        for (what, ours), (_, theirs) in zip(_traits(first), _traits(other), strict=False):
            if ours != theirs:
                if isinstance(ours, list):
                    ours, theirs = next(pair for pair in zip_longest(ours, theirs) if pair[0] != pair[1])
                raise SurgeonError(
                    f"The weights of {first.name} and {other.name} cannot be averaged: {what} "
                    f"{_shown(ours)} in one, but {_shown(theirs)} in the other.",
                    "Leave out --soup, or pass members that differ in their weights alone.",
                )


def _traits(member: LoadedModel) -> Iterator[tuple[str, Any]]:
    """What has to be equal, the most telling first, each with the words that lead to its value."""
    source, model, plan = member.origin.source, member.model, current_plan(member.model)
    yield "the architecture is", source.architecture if source else type(model).__name__
    yield "it is built with", source.arguments if source else None
    yield "the rewrites are", plan.summary()
    yield "among the rewritten layers there is", [operation.layer for operation in plan.operations]
    for operation in plan.operations:
        yield f"{operation.layer} is rewritten with", [(r.name, r.options) for r in operation.rewrites]
    yield "among the inserted units there is", [unit.model_dump(mode="json") for unit in plan.insertions]
    mix = mix_of(model)
    yield "the branches are mixed with", None if mix is None else (mix.share, mix.mixing.value)
    yield "the preprocessing is", member.origin.preprocessing
    tensors = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    yield "among the tensors there is", sorted(tensors)
    for name in sorted(tensors):
        yield f"the shape of {name} is", tensors[name]


def _shown(value: Any) -> str:
    text = str(value) if value not in (None, "", []) else "none"
    return text if len(text) <= 60 else f"{text[:59]}…"


def average_weights(members: Sequence[LoadedModel]) -> LoadedModel:
    """A new network with the mean of every weight and statistic; whole numbers (batch counters) are the first's."""
    check_alike(members)
    states = [member.model.state_dict() for member in members]
    model = copy.deepcopy(members[0].model)
    mean = model.state_dict()  # with its metadata
    mean.update({name: _mean([state[name] for state in states]) for name in states[0]})
    model.load_state_dict(mean)
    if len({temperature_of(member.model) for member in members}) > 1:
        set_temperature(model, None)  # that of a member has nothing to say about another network
    origin = members[0].origin.model_copy(
        update={
            "weights": _common_base(members),
            "history": common_start(member.origin.history for member in members),
        }
    )
    model.origin = origin  # type: ignore[assignment]
    return LoadedModel("soup", model, origin)


def _common_base(members: Sequence[LoadedModel]) -> BaseWeights:
    """The weights that all members began with, if they are the same."""
    bases = dict.fromkeys(member.origin.weights for member in members)
    if len(bases) == 1:
        return next(iter(bases))
    return BaseWeights(origin=f"those of {listing(dict.fromkeys(base.origin for base in bases), limit=len(bases))}")


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    """Summed in at least float32, so that half precision does not lose what is averaged away."""
    if not tensors[0].is_floating_point():
        return tensors[0].clone()
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    total = tensors[0].to(dtype, copy=True)
    for tensor in tensors[1:]:
        total += tensor.to(dtype)
    return (total / len(tensors)).to(tensors[0].dtype)
