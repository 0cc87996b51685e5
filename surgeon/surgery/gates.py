"""How the gates of rewritten layers divide images or channels among modes: are all of the modes used?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError, listing
from surgeon.layers.running import evaluating
from surgeon.layers.surgical import surgical_layers
from surgeon.layers.wrapped import input_of
from surgeon.norms import NormConfig, norms_with

Gates = Callable[[Tensor], Tensor]
"""From a layer's input to the share (N, K, ...) of each mode in it."""


class GateUsage(BaseModel):
    """The modes of one layer, over all images (or over all channels of all images)."""

    model_config = ConfigDict(frozen=True)

    shares: list[float]
    """The mean share of each mode."""
    largest: list[float]
    """How often each mode is the one with the largest share."""


def has_gates(model: nn.Module) -> bool:
    """Whether any rewritten layer divides its input among modes."""
    return bool(_gates_by_layer(model))


def _gates_by_layer(model: nn.Module) -> dict[str, Gates]:
    return {
        name: gates
        for name, layer in surgical_layers(model).items()
        for config in layer.rewrites.values()
        if (gates := config.gates(layer)) is not None
    }


def gated_layers(model: nn.Module) -> dict[str, Gates]:
    """The gates of a network's rewritten layers, by the layer's name."""
    found = _gates_by_layer(model)
    if not found:
        known = norms_with(lambda config: config.gates is not NormConfig.gates)
        raise SurgeonError(
            f"The network has no {listing(known, 'or')} layers, so it has no gates.",
            f"Convert it first: --bn {known[0]}.",
        )
    return found


def gate_usage(model: nn.Module, batches: Iterable[Any]) -> dict[str, GateUsage]:
    """Evaluate a network on batches and tell how much each mode of each layer was used; nothing in it changes.

    Args:
        model: A network with layers that divide their inputs among modes.
        batches: Each is the network's input, a tuple or list that starts with it, or a dictionary with "image",
            "pixel_values" or "input".
    """
    gated = gated_layers(model)
    counts = {name: _Count() for name in gated}
    layers = surgical_layers(model)
    handles = [
        layers[name].register_forward_pre_hook(partial(counts[name].see, gates)) for name, gates in gated.items()
    ]
    device = next(model.parameters()).device
    try:
        with evaluating(model), torch.inference_mode():
            for batch in batches:
                model(input_of(batch).to(device))
    finally:
        for handle in handles:
            handle.remove()
    if not all(count.seen for count in counts.values()):
        raise SurgeonError("No image went through the network's gates.")
    return {name: count.usage() for name, count in counts.items()}


class _Count:
    """Sums over the gates of one layer."""

    def __init__(self) -> None:
        self.seen = 0
        self.shares: Tensor | float = 0.0
        self.largest: Tensor | float = 0.0

    def see(self, gates: Gates, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        shares = gates(inputs[0]).double().transpose(0, 1).flatten(1)  # (K, images or channels)
        self.seen += shares.shape[1]
        self.shares = self.shares + shares.sum(1)
        self.largest = self.largest + shares.argmax(0).bincount(minlength=len(shares))

    def usage(self) -> GateUsage:
        shares, largest = ((torch.as_tensor(t) / self.seen).tolist() for t in (self.shares, self.largest))
        return GateUsage(shares=shares, largest=largest)
