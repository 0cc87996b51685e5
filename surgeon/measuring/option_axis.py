"""Any option of a rewrite that says that it can be swept, the same in all layers that have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.layers.surgical import SurgicalNorm, surgical_layers
from surgeon.measuring.axes import Value
from surgeon.measuring.shared_prefix import SharedPrefix
from surgeon.norms import norms


class OptionAxis:
    """One option of one rewrite; the original network is at its identity setting."""

    def __init__(self, model: nn.Module, rewrite: str, option: str) -> None:
        self.variant, self.option = norms[rewrite], option
        self.name = f"{rewrite}.{option}"
        self.layers = layers_with(model, rewrite)
        self.original = self._original()
        self._prefix = SharedPrefix(model, self.layers.values())

    def _original(self) -> float:
        identity = self.variant.identity
        values = {identity(layer).get(self.option) for layer in self.layers.values()} if identity is not None else set()
        if len(values) != 1 or not isinstance(original := values.pop(), int | float):
            raise SurgeonError(
                f"{self.name} has no value at which all rewritten layers are as in the original network.",
                "A sweep compares with the original: the rewrite has to say where it is.",
            )
        return float(original)

    def logits(self, images: Tensor, values: Sequence[Value]) -> list[Tensor]:
        predicted = []
        with self._prefix.over(images) as forward:
            for value in values:
                self.set(value)
                predicted.append(forward())
        return predicted

    def passes(self, values: int) -> int:
        return values

    def check(self, values: Sequence[float]) -> None:
        """Refuse values that the option cannot have, before anything is computed."""
        for value in values:
            config = self.variant.configure({self.option: value})
            for name, layer in self.layers.items():
                if objection := self.variant.objection(layer, config):
                    raise SurgeonError(f"{self.name} cannot be {value:g}: {name} {objection}.")

    def set(self, value: Value) -> None:
        for layer in self.layers.values():
            options = layer.rewrites[self.variant.name].model_dump() | {self.option: cast("float", value)}
            config = self.variant.configure(options)
            self.variant.install(layer, config)
            layer.rewrites[self.variant.name] = config
            if layer.aux is not None:
                layer.aux.follow(layer)


def layers_with(model: nn.Module, rewrite: str) -> dict[str, SurgicalNorm]:
    """The layers of a network that have a rewrite, by name."""
    return {name: layer for name, layer in surgical_layers(model).items() if rewrite in layer.rewrites}
