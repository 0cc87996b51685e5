"""How the gates of mode normalisation divide images or channels: are all of the modes used?"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.layers.running import evaluating
from surgeon.layers.surgical import surgical_layers
from surgeon.norms.mode.layer import ModeStatistics
from surgeon.norms.mode_group.layer import ChannelModes


class GateUsage(BaseModel):
    """The modes of one layer, over all images (or over all channels of all images)."""

    model_config = ConfigDict(frozen=True)

    shares: list[float]
    """The mean share of each mode."""
    largest: list[float]
    """How often each mode is the one with the largest share."""


def mode_layers(model: nn.Module) -> dict[str, ModeStatistics | ChannelModes]:
    """The gates and statistics of a network's mode layers, by the layer's name."""
    parts = {name: getattr(layer, "modes", None) for name, layer in surgical_layers(model).items()}
    return {name: modes for name, modes in parts.items() if isinstance(modes, ModeStatistics | ChannelModes)}


def gate_usage(model: nn.Module, batches: Iterable[Any]) -> dict[str, GateUsage]:
    """Evaluate a network on batches and tell how much each mode of each layer was used; nothing in it changes.

    A batch is the model's input, or a tuple or list that starts with it.
    """
    modes = mode_layers(model)
    if not modes:
        raise SurgeonError("The network has no mode layers, so it has no gates.", "Convert it first: --bn mode.")
    counts = {name: _Count() for name in modes}
    layers = surgical_layers(model)
    handles = [layers[name].register_forward_pre_hook(partial(counts[name].see, part)) for name, part in modes.items()]
    device = next(model.parameters()).device
    try:
        with evaluating(model), torch.inference_mode():
            for batch in batches:
                model((batch[0] if isinstance(batch, tuple | list) else batch).to(device))
    finally:
        for handle in handles:
            handle.remove()
    if not all(count.seen for count in counts.values()):
        raise SurgeonError("No image went through the network's mode layers.")
    return {name: count.usage() for name, count in counts.items()}


class _Count:
    """Sums over the gates of one layer."""

    def __init__(self) -> None:
        self.seen = 0
        self.shares: Tensor | float = 0.0
        self.largest: Tensor | float = 0.0

    def see(self, modes: ModeStatistics | ChannelModes, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        gates = modes.gates(inputs[0]).double().transpose(0, 1).flatten(1)  # (K, images or channels)
        self.seen += gates.shape[1]
        self.shares = self.shares + gates.sum(1)
        self.largest = self.largest + gates.argmax(0).bincount(minlength=len(gates))

    def usage(self) -> GateUsage:
        shares, largest = ((torch.as_tensor(t) / self.seen).tolist() for t in (self.shares, self.largest))
        return GateUsage(shares=shares, largest=largest)
