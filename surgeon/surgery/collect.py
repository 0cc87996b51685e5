"""Collect the running statistics that layers lack, from images, without training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from surgeon.errors import SurgeonError
from surgeon.layers.surgical import SurgicalNorm
from surgeon.surgery.parity import evaluating


def collect_statistics(model: nn.Module, batches: Iterable[Any]) -> nn.Module:
    """Average the statistics of the batches into every layer that has none, in place.

    That is BatchNorm with track_running_stats=False, and GroupNorm once it has been converted.
    A batch is the model's input, or a tuple or list that starts with it. Weights stay as they are.
    """
    layers = [cast("SurgicalNorm", module) for module in model.modules() if _lacks_statistics(module)]
    if not layers:
        raise SurgeonError("Every layer has its running statistics already; there is nothing to collect.")
    momenta = [layer.momentum for layer in layers]
    seen = 0
    with evaluating(model), torch.no_grad():
        for layer in layers:
            make_room(layer)
            layer.momentum = None  # a plain average over the batches
            layer.training = True
        for batch in batches:
            model(batch[0] if isinstance(batch, tuple | list) else batch)
            seen += 1
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
            layer.training = False
    if not seen:
        raise SurgeonError("No batch was given to collect statistics from.")
    return model


def _lacks_statistics(module: nn.Module) -> bool:
    if isinstance(module, SurgicalNorm):
        return not module.has_statistics
    return isinstance(module, _BatchNorm) and module.running_mean is None


def make_room(layer: SurgicalNorm | _BatchNorm) -> None:
    """Give a layer running statistics at their initial values if it has none."""
    if layer.running_mean is not None:
        return
    like = layer.weight if layer.weight is not None else torch.empty(0)
    layer.running_mean = torch.zeros(layer.num_features, device=like.device, dtype=like.dtype)
    layer.running_var = torch.ones(layer.num_features, device=like.device, dtype=like.dtype)
    layer.num_batches_tracked = torch.tensor(0, device=like.device)
    if isinstance(layer, _BatchNorm):
        layer.track_running_stats = True
