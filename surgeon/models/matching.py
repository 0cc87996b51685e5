"""Finding out which layer of a weights file is which of the network's, where the names do not tell.

Two sources tell the order of layers: the file itself, if it keeps that of the program, and the numbers in the names.
Each way to pair equal shapes that follows from them is tried on data; one alone must stand, or nothing is loaded.
"""

from __future__ import annotations

import copy
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.models.consistency import EXAMPLES, Agreement, agreement, like_images
from surgeon.models.guessing import where_it_fits
from surgeon.models.structure import Layer, difference, layers_of
from surgeon.models.weights import WeightsFile, wrapper_prefix

Inputs = Callable[[int], tuple[Any, ...] | None]

_RENAME = "Name the layers yourself: --rename 'PATTERN=REPLACEMENT'."


@dataclass(frozen=True)
class Pairing:
    """For each layer of the network the one of the file.

    Args:
        file: Layers of the file, in the order of the network's.
        told: Whether names or the file's order tell the whole of it, and not only the order among equal shapes.
    """

    file: tuple[Layer, ...]
    told: bool


@dataclass(frozen=True)
class Matched:
    """A weights file under the network's names.

    Args:
        weights: With the names of the network.
        layers: The network's name of each layer, by its name in the file.
        checked: How many BatchNorm layers agree with what reaches them.
        norms: How many there are.
    """

    weights: WeightsFile
    layers: dict[str, str]
    checked: int
    norms: int


def matched(model: nn.Module, weights: WeightsFile, inputs: Inputs) -> Matched:
    """Match layers by order and shape, and check by running data through the network.

    Args:
        model: The network to fill; it is left as it is.
        weights: With names of another code base.
        inputs: Gives so many examples that the network takes, or None if that is not known.
    """
    own, file = layers_of(model.state_dict()), layers_of(weights.state)
    if (different := difference(file, own)) is not None:
        raise SurgeonError(
            f"{str(weights.path)!r} has another structure than the model: {different}.", where_it_fits(weights)
        )
    pairings = _pairings(file, own)
    examples = inputs(EXAMPLES)
    probe = copy.deepcopy(model)
    found = [_checked(probe, _state(pairing, own, weights), examples) for pairing in pairings]
    chosen = _chosen(pairings, found, own, weights.path)
    pairing = pairings[chosen]
    norms = sum(layer.kind == "BatchNorm layer" for layer in own)
    checked = found[chosen]
    number = len(checked.layers) if checked is not None else 0
    doubts = () if checked is None or checked.doubtful is None else (_doubt(checked, checked.doubtful),)
    names = {theirs.name: ours.name for theirs, ours in zip(pairing.file, own, strict=True)}
    notes = (*weights.notes, _note(names), _evidence(number, norms, file), *doubts)
    prefix = wrapper_prefix(layer.name + "." for layer in own)
    state = {name.removeprefix(prefix): tensor for name, tensor in _state(pairing, own, weights).items()}
    return Matched(replace(weights, state=state, notes=notes), names, number, norms)


def _state(pairing: Pairing, own: Sequence[Layer], weights: WeightsFile) -> dict[str, Tensor]:
    return {
        name: weights.state[theirs.tensors[part]]
        for theirs, ours in zip(pairing.file, own, strict=True)
        for part, name in ours.tensors.items()
    }


# --- ways to pair ---------------------------------------------------------------------------------------


def _pairings(file: Sequence[Layer], own: Sequence[Layer]) -> list[Pairing]:
    """All that follow from the order in the file and from the numbers in names, each once."""
    orders = [sorted(file, key=lambda layer: natural(layer.name))]
    names = [layer.name for layer in file]
    if names != sorted(names):  # as safetensors keeps them: an order that tells nothing
        orders.insert(0, list(file))
    found: dict[tuple[str, ...], Pairing] = {}

    def add(layers: Sequence[Layer], told: bool) -> None:
        found.setdefault(tuple(layer.name for layer in layers), Pairing(tuple(layers), told))

    wanted = [layer.shapes for layer in own]
    for order in orders:
        if [layer.shapes for layer in order] == wanted:
            add(order, told=True)
    if (by_names := _by_numbers(file, own)) is not None:
        add(by_names, told=True)
    if _can_be_checked(own):
        for order in orders:
            add(_by_order_of_equals(order, own), told=False)
    return list(found.values())


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts `layer10` behind `layer2`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def _by_numbers(file: Sequence[Layer], own: Sequence[Layer]) -> list[Layer] | None:
    """Series of names that differ in numbers alone, each paired with the only one of the same shapes in a row."""
    theirs, ours = _series(file), _series(own)
    keys = [tuple(layer.shapes for layer in series) for series in theirs]
    if len(set(keys)) < len(keys) or Counter(keys) != Counter(tuple(one.shapes for one in series) for series in ours):
        return None
    by_key = dict(zip(keys, theirs, strict=True))
    pairs = {
        layer.name: partner
        for series in ours
        for layer, partner in zip(series, by_key[tuple(one.shapes for one in series)], strict=True)
    }
    return [pairs[layer.name] for layer in own]


def _series(layers: Sequence[Layer]) -> list[list[Layer]]:
    groups: dict[tuple[str, str], list[Layer]] = defaultdict(list)
    for layer in layers:
        groups[re.sub(r"\d+", "#", layer.name), layer.kind].append(layer)
    return [sorted(group, key=lambda layer: natural(layer.name)) for group in groups.values()]


def _can_be_checked(own: Sequence[Layer]) -> bool:
    """Whether every layer that has others of its shapes is one that BatchNorm statistics tell of.

    A convolution without bias stands before a normalisation.
    """
    numbers = Counter(layer.shapes for layer in own)
    return all(
        layer.kind == "BatchNorm layer" or (layer.kind == "convolution" and "bias" not in layer.tensors)
        for layer in own
        if numbers[layer.shapes] > 1
    )


def _by_order_of_equals(order: Sequence[Layer], own: Sequence[Layer]) -> list[Layer]:
    """The first of some shapes with the first of these shapes, and so on."""
    waiting: dict[object, list[Layer]] = defaultdict(list)
    for layer in reversed(order):
        waiting[layer.shapes].append(layer)
    return [waiting[layer.shapes].pop() for layer in own]


# --- which of them --------------------------------------------------------------------------------------


def _checked(probe: nn.Module, state: dict[str, Tensor], examples: tuple[Any, ...] | None) -> Agreement | None:
    """None where nobody knows what the network takes, or it takes no such examples."""
    if examples is None:
        return None
    probe.load_state_dict(state, strict=False)
    return agreement(probe, like_images(examples))


def _chosen(pairings: Sequence[Pairing], found: Sequence[Agreement | None], own: Sequence[Layer], path: Path) -> int:
    """The one pairing that stands."""
    can_tell = any(one is not None and one.layers for one in found)
    standing = [
        index
        for index, (pairing, one) in enumerate(zip(pairings, found, strict=True))
        if (one is None or one.holds) and (pairing.told or can_tell)
    ]
    if len(standing) == 1:
        return standing[0]
    if len(standing) > 1:
        one, other = (pairings[index].file for index in standing[:2])
        place = next(index for index, layers in enumerate(zip(one, other, strict=True)) if layers[0] != layers[1])
        raise SurgeonError(
            f"{str(path)!r} fits in more than one way: {own[place].name!r} may be {one[place].name!r} or "
            f"{other[place].name!r}.",
            _RENAME,
        )
    raise SurgeonError(f"The layers of {str(path)!r} have the model's shapes, but {_why_none(found)}.", _RENAME)


def _why_none(found: Sequence[Agreement | None]) -> str:
    best = max(
        (one for one in found if one is not None), key=lambda one: min(one.layers.values(), default=-1.0), default=None
    )
    if best is None or (best.worst is None and best.finite):
        return "neither the order in the file nor the numbers in its names show which is which"
    if not best.finite:
        return "outputs are not finite"
    return (
        f"in each order tried, stored BatchNorm means disagree with what reaches the layer (in the best one "
        f"{best.worst!r}: correlation {best.layers[best.worst or '']:.2f})"
    )


def _note(names: dict[str, str]) -> str:
    changed = [f"{old} → {new}" for old, new in names.items() if old != new]
    return (
        f"matched {count(len(names), 'layer')} by order and shape: "
        f"{listing(changed, limit=3) or 'under their own names'}"
    )


def _doubt(found: Agreement, layer: str) -> str:
    return (
        f"doubtful: {layer!r} agrees less (correlation {found.layers[layer]:.2f}) than in trained networks, as if "
        "layers were exchanged; evaluate on labelled images"
    )


def _evidence(checked: int, norms: int, layers: Sequence[Layer]) -> str:
    if checked:
        first = " (the first sees the images themselves)" if checked == norms - 1 else ""
        return (
            f"checked on random images: outputs are finite, and in {checked} of {count(norms, 'BatchNorm layer')} the "
            f"stored means agree with what reaches the layer{first}"
        )
    numbers = Counter(layer.shapes for layer in layers)
    equals = sum(number for number in numbers.values() if number > 1)
    return f"no stored statistics could confirm it: the order of {count(equals, 'layer')} of equal shapes is the file's"
