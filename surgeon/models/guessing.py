"""Which architectures named tensors fit: by the names and shapes of our own networks, timm's and torchvision's."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from surgeon.core.errors import SurgeonError, listing
from surgeon.models.catalog import CATALOG
from surgeon.models.names import registered_in
from surgeon.models.structure import Layer, layers_of, other_classes
from surgeon.models.weights import WeightsFile, read_weights

MOST_SECONDS = 8.0
"""Networks are built one after the other to compare them with the file, and a hint is not worth more."""
MOST_NAMES = 3
MOST_SOURCES = 3
IMAGENET_CLASSES = 1000


class Fit(NamedTuple):
    """Architectures that a weights file fits, and whether its tensors also have their names."""

    architectures: tuple[str, ...] = ()
    by_names: bool = True

    @property
    def text(self) -> str:
        """Their names, and what it takes to load the file."""
        return listing(self.architectures, "or") + ("" if self.by_names else " by shapes alone (--match shapes)")


def weights_as_model(name: str) -> SurgeonError:
    """What to say to somebody who has named a file where a network is wanted."""
    try:
        weights = read_weights(Path(name))
        fit = architectures_of(weights)
        fit = fit if fit.architectures and fit.by_names else _of_timm(weights) or fit
    except SurgeonError as error:
        return SurgeonError(f"MODEL cannot be the file {name!r}.", str(error))
    fitting = f"It fits {fit.text}" if fit.architectures else "Name the architecture that it was trained as"
    example = fit.architectures[0] if fit.architectures else "NAME"
    match = "" if fit.by_names else " --match shapes"
    return SurgeonError(
        f"{name!r} is a weights file.", f"{fitting}: surgeon inspect {example} --weights {shlex.quote(name)}{match}"
    )


def where_it_fits(weights: WeightsFile) -> str:
    """A hint at the network that weights are of."""
    fit = architectures_of(weights)
    return f"It fits {fit.text}." if fit.architectures else "Name the architecture that it was trained as."


def architectures_of(weights: WeightsFile) -> Fit:
    """The networks of ours and of torchvision that the tensors fit, by names if there are such, else by shapes."""
    file = layers_of(weights.state)
    by_shapes = []
    for name, own in (*_built((name, entry.build) for name, entry in CATALOG.items()), *_built(_of_torchvision(file))):
        if _fits(file, own):
            if _names(own) == _names(file):
                return Fit((name,))
            by_shapes.append(name)
    return Fit(tuple(by_shapes[:MOST_NAMES]), by_names=False) if by_shapes else Fit()


def _names(layers: list[Layer]) -> set[str]:
    return {layer.name for layer in layers}


def _fits(file: list[Layer], own: list[Layer]) -> bool:
    """Whether both have the same layers, apart from the number of classes."""
    theirs, ours = (Counter(layer.shapes for layer in layers) for layers in (file, own))
    return theirs == ours or other_classes(file, own) is not None


def _built(
    networks: Iterable[tuple[str, Callable[[], nn.Module]]], deadline: float = math.inf
) -> Iterator[tuple[str, list[Layer]]]:
    for name, build in networks:
        if time.monotonic() > deadline:
            return
        try:
            with torch.device("meta"):
                state = build().state_dict()
        except Exception:  # some cannot be built without memory, and any can raise anything
            continue
        yield name, layers_of(state)


def _of_timm(weights: WeightsFile) -> Fit | None:
    """The networks of timm that have the same names and shapes.

    Building all takes minutes. So one of each source file that speaks of all parts of the network is built, and then
    more of those files whose networks are the most like it; the name of the weights file may tell as well.
    """
    import timm

    file = layers_of(weights.state)
    series = _series(file)
    parts = {_word(layer.name.partition(".")[0]) for layer in file}
    sources = [names for names, text in registered_in("timm") if names and all(part in text for part in parts)]
    shortest = {min(names, key=lambda name: (len(name), name)): names for names in sources}
    called = [name for names, _ in registered_in("timm") for name in names if _says(weights.path, name)]
    deadline = time.monotonic() + MOST_SECONDS

    def built(names: Iterable[str]) -> Iterator[tuple[str, list[Layer]]]:
        return _built(((name, partial(timm.create_model, name)) for name in names), deadline)

    def fitting(names: Iterable[str], by_names: bool = True) -> tuple[str, ...]:
        alike = ((name, own) for name, own in built(names) if _fits(file, own))
        return tuple(islice((name for name, own in alike if not by_names or _names(own) == _names(file)), MOST_NAMES))

    called.sort(key=len, reverse=True)
    for by_names in (True, False):
        if found := fitting(called, by_names):
            return Fit(found, by_names)
    alike = {name: len(series & _series(own)) / len(series | _series(own)) for name, own in built(shortest)}
    best = sorted(alike, key=lambda name: -alike[name])[:MOST_SOURCES]
    found = fitting(name for first in best for name in sorted(shortest[first], key=lambda name: (len(name), name)))
    return Fit(found) if found else None


def _says(path: Path, name: str) -> bool:
    """Whether a file is called after a network: `efficientnet-lite1-77cc.pth` after `tf_efficientnet_lite1`."""
    return name.removeprefix("tf_") in path.name.lower().replace("-", "_")


def _series(layers: Iterable[Layer]) -> set[str]:
    return {re.sub(r"\d+", "#", layer.name) for layer in layers}


def _word(part: str) -> str:
    return re.sub(r"\d+$", "", part)


def _of_torchvision(file: Sequence[Layer]) -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    """Those with as many parameters, which torchvision tells of its weights, apart from the number of classes."""
    from torchvision import models

    number = sum(math.prod(shape) for layer in file for part, shape in layer.shapes if not part.startswith("running_"))
    head = next((dict(layer.shapes) for layer in reversed(file) if layer.kind == "linear layer"), {})
    if {"weight", "bias"} == head.keys():
        number += (IMAGENET_CLASSES - head["weight"][0]) * (head["weight"][1] + 1)
    for name in models.list_models():
        weights = getattr(models.get_model_weights(name), "DEFAULT", None)
        if weights is not None and weights.meta.get("num_params") == number:
            yield f"torchvision:{name}", partial(models.get_model, name)
