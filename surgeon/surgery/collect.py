"""Collect the running statistics that layers lack, from images, without training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.core.private import BatchNorm
from surgeon.layers.running import evaluating
from surgeon.layers.surgical import SurgicalNorm
from surgeon.layers.wrapped import input_of


def collect_statistics(model: nn.Module, batches: Iterable[Any]) -> nn.Module:
    """Average the statistics of the batches into every layer that has none, in place.

    That is BatchNorm with track_running_stats=False, and GroupNorm once it has been converted.
    Weights stay as they are.

    Args:
        model: The network.
        batches: Each is the network's input, a tuple or list that starts with it, or a dictionary with "image",
            "pixel_values" or "input".
    """
    layers = [cast("SurgicalNorm", module) for module in model.modules() if _lacks_statistics(module)]
    if not layers:
        raise SurgeonError("Every layer has its running statistics already; there is nothing to collect.")
    before = [_state(layer) for layer in layers]
    try:
        with evaluating(model), torch.no_grad():
            _average_batches(model, layers, batches)
    except BaseException:
        for layer, state in zip(layers, before, strict=True):
            for name, value in state.items():
                setattr(layer, name, value)
        raise
    for layer, state in zip(layers, before, strict=True):
        layer.momentum, layer.training = state["momentum"], state["training"]
    return model


def _state(layer: SurgicalNorm | BatchNorm) -> dict[str, Any]:
    """What collecting changes of a layer, as it is now."""
    names = ("running_mean", "running_var", "num_batches_tracked", "momentum", "training", "track_running_stats")
    values = {name: getattr(layer, name) for name in names}
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in values.items()}


def _average_batches(model: nn.Module, layers: list[SurgicalNorm], batches: Iterable[Any]) -> None:
    for layer in layers:
        make_room(layer)
        layer.momentum = None  # a plain average over the batches
        layer.training = True
    seen = 0
    for batch in batches:
        model(input_of(batch))
        seen += 1
    if not seen:
        raise SurgeonError("The loader gave no batches to collect statistics from.")


def _lacks_statistics(module: nn.Module) -> bool:
    if isinstance(module, SurgicalNorm):
        return not module.has_statistics
    return isinstance(module, BatchNorm) and module.running_mean is None


def make_room(layer: SurgicalNorm | BatchNorm) -> None:
    """Give a layer running statistics at their initial values if it has none."""
    if layer.running_mean is not None:
        return
    like = layer.weight if layer.weight is not None else torch.empty(0)
    layer.running_mean = torch.zeros(layer.num_features, device=like.device, dtype=like.dtype)
    layer.running_var = torch.ones(layer.num_features, device=like.device, dtype=like.dtype)
    layer.num_batches_tracked = torch.tensor(0, device=like.device)
    layer.track_running_stats = True
