"""Estimate the running statistics of a network's BatchNorm layers anew, from images, without training.

Averaged weights give other features, so averaged statistics no longer describe them. As in training, each
batch is normalised by its own statistics; what a layer keeps in the end are the moments of all values that
it has seen, E[x] and E[x^2], in which every image counts the same whatever the size of its batch. Dropout
and whatever else differs in training stay off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from surgeon.core.errors import SurgeonError
from surgeon.core.private import BatchNorm
from surgeon.layers.router import Branch
from surgeon.layers.running import evaluating
from surgeon.layers.statistics import Statistics, mix, wide
from surgeon.layers.surgical import SurgicalNorm, is_whole_layer, surgical_layers


def restate_statistics(model: nn.Module, batches: Iterable[Any]) -> int:
    """Replace running statistics by those of the images, in place; returns in how many layers.

    A batch is the model's input, or a tuple or list that starts with it. Frozen layers keep theirs. So do
    auxiliary branches, and layers with a rule of their own (see `keeps_statistics`): their images or statistics are
    others than those of evaluation.
    """
    seen = {layer: _Seen() for layer in model.modules() if _is_restated(layer)}
    if not seen:
        raise SurgeonError("The network has no layer whose running statistics could be estimated.")
    before = {layer: _buffers(layer) for layer in seen}
    try:
        with evaluating(model), torch.no_grad(), _watching(seen), _as_in_training(model):
            for batch in batches:
                model(batch[0] if isinstance(batch, tuple | list) else batch)
        if not any(moments.values for moments in seen.values()):
            raise SurgeonError("No batch was given to estimate statistics from.")
    except BaseException:
        for layer, state in before.items():
            _fill(layer, state)
        raise
    for layer, moments in seen.items():
        _fill(layer, moments.all if moments.all is not None else before[layer])
    return len(seen)


def keeps_statistics(model: nn.Module) -> tuple[str, ...]:
    """The layers some of whose statistics are not estimated: they have an auxiliary branch, or a rule of their own."""
    return tuple(
        name for name, layer in surgical_layers(model).items() if layer.aux is not None or layer.whole_rule is not None
    )


@dataclass
class _Seen:
    """The moments of all values that a layer has seen, and how many there were per channel."""

    all: Statistics | None = None
    values: int = 0

    def add(self, batch: Statistics, values: int) -> None:
        self.values += values
        self.all = batch if self.all is None else mix(self.all, batch, values / self.values)


def _is_restated(layer: nn.Module) -> bool:
    if isinstance(layer, SurgicalNorm):
        whole = is_whole_layer(layer) and layer.whole_rule is None
        return whole and layer.running_mean is not None and not layer.frozen
    return isinstance(layer, BatchNorm) and layer.running_mean is not None


def _buffers(layer: nn.Module) -> Statistics:
    mean, var = cast("Tensor", layer.running_mean), cast("Tensor", layer.running_var)
    return Statistics(mean.clone(), var.clone())


def _fill(layer: nn.Module, moments: Statistics) -> None:
    cast("Tensor", layer.running_mean).copy_(moments.mean)
    cast("Tensor", layer.running_var).copy_(moments.var)


@contextmanager
def _watching(seen: dict[nn.Module, _Seen]) -> Iterator[None]:
    """Every layer takes note of its input, and normalises it by its own statistics.

    The layers stay in evaluation mode with the batch's moments for running ones. Training mode would
    refuse a batch of one value, cut it into groups, or wait for other processes.
    """

    def look(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(layer, SurgicalNorm) and layer.router.branch is not Branch.MAIN:
            return
        x = wide(inputs[0])
        var, mean = torch.var_mean(x, dim=[d for d in range(x.dim()) if d != 1], correction=0)
        batch = Statistics(mean, var)
        seen[layer].add(batch, x.numel() // x.shape[1])
        _fill(layer, batch)

    handles: list[RemovableHandle] = [layer.register_forward_pre_hook(look) for layer in seen]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _as_in_training(model: nn.Module) -> Iterator[None]:
    """Example weighting, which training knows nothing of, is off."""
    layers = list(surgical_layers(model).values())
    alphas = [layer.alpha_values for layer in layers]
    for layer in layers:
        layer.set_alpha(layer.identity_alpha)
    try:
        yield
    finally:
        for layer, alpha in zip(layers, alphas, strict=True):
            layer.set_alpha(alpha)
