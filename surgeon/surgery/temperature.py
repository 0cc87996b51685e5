"""Temperature scaling as a part of the network: its logits are divided by one number.

A hook, not a change of the last layer's weights: whatever the architecture ends in, the weights stay
those that were trained.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.core.private import hooks_of, remove_hooks


class DivideLogits:
    """A forward hook of the whole network."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def __call__(self, model: nn.Module, inputs: Any, logits: Any) -> Any:  # noqa: ARG002
        if isinstance(logits, dict) and isinstance(logits.get("out"), Tensor):  # of torchvision's, which segment
            return {**logits, "out": logits["out"] / self.temperature}
        if not isinstance(logits, Tensor):
            raise SurgeonError(f"A temperature divides logits, but the network gives a {type(logits).__name__}.")
        return logits / self.temperature


def set_temperature(model: nn.Module, temperature: float | None) -> None:
    """Divide the network's logits by a temperature from now on; None takes it away."""
    remove_hooks(model, DivideLogits)
    if temperature is None:
        return
    if not temperature > 0:
        raise SurgeonError(f"A temperature cannot be {temperature:g}.", "It is a number above 0.")
    model.register_forward_hook(DivideLogits(temperature))


def temperature_of(model: nn.Module) -> float | None:
    """What the network's logits are divided by, if anything."""
    return next((hook.temperature for hook in hooks_of(model, DivideLogits)), None)
