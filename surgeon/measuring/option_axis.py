"""A swept option: any number of a rewrite that says that it can be tuned without retraining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from surgeon.core.errors import SurgeonError
from surgeon.layers.surgical import SurgicalNorm, surgical_layers
from surgeon.measuring.axes import PassPerValue, Value
from surgeon.measuring.shared_prefix import SharedPrefix
from surgeon.norms import norms
from surgeon.surgery.apply import install_rewrite


class OptionAxis(PassPerValue):
    """One option of a rewrite, the same in all layers that have it.

    The original is the value at which these layers are as before surgery; for a rewrite that has none, the present one.
    """

    def __init__(self, model: nn.Module, rewrite: str, option: str) -> None:
        self.variant, self.option = norms[rewrite], option
        self.name = f"{rewrite}.{option}"
        self.layers = {name: layer for name, layer in surgical_layers(model).items() if rewrite in layer.rewrites}
        if not self.layers:
            raise SurgeonError(
                f"The network has no {rewrite} layers, so it has no {option} to sweep.",
                f"Convert it first: --bn {rewrite}.",
            )
        originals = {self._original(layer) for layer in self.layers.values()}
        if len(originals) != 1:
            raise SurgeonError(f"The {rewrite} layers have no {option} in common at which the network is the original.")
        self.original = originals.pop()
        self._found = {name: self._present(layer) for name, layer in self.layers.items()}
        self._prefix = SharedPrefix(model, self.layers.values())

    def _original(self, layer: SurgicalNorm) -> float:
        settings = self.variant.identity(layer) if self.variant.identity is not None else {}
        return float(settings.get(self.option, self._present(layer)))

    def _present(self, layer: SurgicalNorm) -> float:
        return float(getattr(layer.rewrites[self.variant.name], self.option))

    def check(self, values: Sequence[float]) -> None:
        """Refuse values that a layer cannot take, before anything is computed."""
        for value in values:
            config = self.variant.configure({self.option: value})
            for name, layer in self.layers.items():
                if objection := self.variant.objection(layer, config):
                    raise SurgeonError(f"{self.name} cannot be {value:g}: {name} {objection}.")

    def set(self, value: Value) -> None:
        """Leave the network at a value."""
        for name, layer in self.layers.items():
            options = layer.rewrites[self.variant.name].model_dump(mode="json")
            chosen = value[name] if isinstance(value, Mapping) else value
            install_rewrite(layer, self.variant.name, self.variant.configure({**options, self.option: chosen}))

    def restore(self) -> None:
        """Leave the network as it was when the axis was made."""
        self.set(self._found)
