"""The layers that a set of named tensors tells of: their kinds and shapes, whatever they are called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from surgeon.core.errors import count, listing
from surgeon.models.weights import is_batch_counter

# What code bases call the same part of a layer.
_PARTS = {
    "weight": ("weight", "kernel", "gamma", "scale"),
    "bias": ("bias", "beta", "offset", "shift"),
    "running_mean": ("running_mean", "moving_mean"),
    "running_var": ("running_var", "moving_variance", "moving_var", "running_variance"),
}
_PART_OF = {word: part for part, words in _PARTS.items() for word in words}
_NAME = re.compile(rf"(.+?)[./_]({'|'.join(sorted(_PART_OF, key=len, reverse=True))})$")

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Layer:
    """Tensors that belong together.

    Args:
        name: What their names have in common.
        tensors: Their names, by what they are in the layer.
        shapes: Theirs, by the same.
    """

    name: str
    tensors: dict[str, str]
    shapes: Shapes

    @property
    def kind(self) -> str:
        """What kind of layer has such tensors."""
        shapes = dict(self.shapes)
        if "running_mean" in shapes:
            return "BatchNorm layer"
        dimensions = len(shapes.get("weight", ()))
        return {0: "parameter", 1: "norm or scale", 2: "linear layer"}.get(dimensions, "convolution")

    @property
    def shape(self) -> str:
        """Of its largest tensor, for people."""
        return "x".join(map(str, max((len(shape), shape) for _, shape in self.shapes)[1])) or "a scalar"


def layers_of(state: Mapping[str, object]) -> list[Layer]:
    """The layers, in the order of their first tensors."""
    found: dict[str, dict[str, str]] = {}
    for name, value in state.items():
        if isinstance(value, Tensor) and not is_batch_counter(name):
            split = _NAME.match(name)
            layer, part = (split[1], _PART_OF[split[2]]) if split else (name, "")
            parts = found.setdefault(layer, {})
            parts[name if part in parts else part] = name
    shapes = {name: tuple(value.shape) for name, value in state.items() if isinstance(value, Tensor)}
    return [
        Layer(layer, parts, tuple(sorted((part, shapes[name]) for part, name in parts.items())))
        for layer, parts in found.items()
    ]


def other_classes(file: Sequence[Layer], own: Sequence[Layer]) -> int | None:
    """How many outputs the last layer of a file has, if only their number keeps it from fitting."""
    (theirs, ours) = (Counter(layer.shapes for layer in layers) for layers in (file, own))
    surplus, lacking = list((theirs - ours).elements()), list((ours - theirs).elements())
    if len(surplus) != 1 or len(lacking) != 1 or own[-1].shapes != lacking[0]:
        return None
    one, other = dict(surplus[0]), dict(lacking[0])
    if one.keys() != other.keys() or any(one[part][1:] != other[part][1:] for part in one):
        return None
    counts = {shape[0] for shape in one.values() if shape}
    return counts.pop() if len(counts) == 1 else None


def difference(file: Sequence[Layer], own: Sequence[Layer]) -> str | None:
    """What a file has that a network has not, and the other way round; None if both have the same layers."""
    theirs, ours = (Counter(layer.shapes for layer in layers) for layers in (file, own))
    if theirs == ours:
        return None
    kinds = [Counter(layer.kind for layer in layers) for layers in (file, own)]
    parts = [
        f"{_counted(kinds[0][kind], kind)} instead of {kinds[1][kind]}"
        for kind in kinds[0] | kinds[1]
        if kinds[0][kind] != kinds[1][kind]
    ]
    for whose, layers, surplus in (("only the file", file, theirs - ours), ("only the model", own, ours - theirs)):
        if surplus:
            parts.append(f"{whose} has {_examples(layers, surplus)}")
    return "; ".join(parts)


def _counted(number: int, kind: str) -> str:
    return f"{number} norms or scales" if kind == "norm or scale" and number != 1 else count(number, kind)


def _examples(layers: Sequence[Layer], surplus: Counter[Shapes]) -> str:
    """The most frequent of what is too many, each with the last of its layers: depth is added at the end."""
    texts = []
    for shapes, number in surplus.most_common(2):
        last = [layer for layer in layers if layer.shapes == shapes][-1]
        texts.append(f"{_counted(number, last.kind)} of {last.shape} ({last.name})")
    others = sum(surplus.values()) - sum(number for _, number in surplus.most_common(2))
    return listing(texts) + (f" and {count(others, 'other')}" if others else "")
