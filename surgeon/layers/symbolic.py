"""Symbolic tracing (torch.fx): what a layer of ours does is one step of a traced network, as with torch's own layers.

torchvision's and timm's feature extractors trace a network in training and in evaluation mode, whichever is used
then. A step holds the layer itself, so it follows `train()`, `eval()` and whatever is set in the layer later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import torch.fx
from torch import Tensor, nn

Layer = TypeVar("Layer", bound=nn.Module)


def traced(x: object) -> bool:
    """Whether x stands for features to come."""
    return isinstance(x, torch.fx.Proxy)


def step(compute: Callable[[Layer, Tensor], Tensor], layer: Layer, x: Tensor) -> Tensor:
    """`compute(layer, x)`; where x stands for features to come, a step of the traced network that calls it."""
    features: object = x
    if not isinstance(features, torch.fx.Proxy):
        return compute(layer, x)
    path = features.tracer.path_of_module(layer)  # type: ignore[attr-defined]
    if not path:  # the layer alone is traced, and no graph can hold its own root
        return compute(layer, x)
    holder = features.tracer.create_proxy("get_attr", path, (), {})
    return cast("Tensor", features.tracer.create_proxy("call_function", compute, (holder, features), {}))
