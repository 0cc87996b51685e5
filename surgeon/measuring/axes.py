"""What can be swept: a number on which the predictions depend, and how to predict at many of its values at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, cast

from torch import Tensor, nn

from surgeon.core.errors import SurgeonError, listing
from surgeon.layers.router import Branch
from surgeon.layers.surgical import SurgicalNorm, surgical_layers
from surgeon.measuring.shared_prefix import SharedPrefix
from surgeon.norms import norms_with
from surgeon.surgery.branches import Mixing, branch, mix_branches, mix_of, mixed, split_layers
from surgeon.surgery.temperature import temperature_of

Pair = tuple[float, float]
Value = float | Pair | Mapping[str, float | Sequence[float]]
"""One number for the whole network, one for each of two axes, or one or several for each layer by name."""


class Axis(Protocol):
    """A swept number."""

    name: str

    @property
    def original(self) -> float | Pair:
        """The value at which the network predicts as before any surgery."""

    def logits(self, images: Tensor, values: Sequence[Value]) -> list[Tensor]:
        """The predictions for the same images at each value."""

    def passes(self, values: int) -> int:
        """How often images go through the network for a number of values."""

    def set(self, value: Value) -> None:
        """Leave the network at a value."""

    def restore(self) -> None:
        """Leave the network as it was when the axis was made."""


@contextmanager
def kept_if_it_fails(*axes: Axis) -> Iterator[None]:
    """Leave a network as it was before its axes were made if anything goes wrong."""
    try:
        yield
    except BaseException:
        for axis in axes:
            axis.restore()
        raise


class PassPerValue(ABC):
    """An axis whose every value takes a pass of its own, but for the layers before the first one that it changes."""

    _prefix: SharedPrefix

    @abstractmethod
    def set(self, value: Value) -> None:
        """Leave the network at a value."""

    def logits(self, images: Tensor, values: Sequence[Value]) -> list[Tensor]:
        """The predictions for the same images at each value."""
        predicted = []
        with self._prefix.over(images) as forward:
            for value in values:
                self.set(value)
                predicted.append(forward())
        return predicted

    def passes(self, values: int) -> int:
        """How often images go through the network for a number of values."""
        return values


class AlphaAxis(PassPerValue):
    """The weight of each example's own statistics, the same in all layers in which it can be set."""

    name = "alpha"

    def __init__(self, model: nn.Module) -> None:
        self.layers = layers_with_alpha(model)
        originals = {layer.identity_alpha for layer in self.layers.values()}
        if len(originals) != 1:
            raise SurgeonError(
                "The rewritten layers have no alpha in common at which the network is the original.",
                "Rewrite only its BatchNorm layers, or only its GroupNorm layers.",
            )
        self.original = originals.pop()
        self._found = {name: layer.alpha_values for name, layer in self.layers.items()}
        self._prefix = SharedPrefix(model, self.layers.values())

    def set(self, value: Value) -> None:
        for name, layer in self.layers.items():
            layer.set_alpha(value[name] if isinstance(value, Mapping) else cast("float", value))

    def restore(self) -> None:
        self.set(self._found)


def has_alpha(model: nn.Module) -> bool:
    """Whether the network has an alpha to sweep."""
    return any(layer.alpha_options for layer in surgical_layers(model).values())


def layers_with_alpha(model: nn.Module) -> dict[str, SurgicalNorm]:
    """The layers of a network whose alpha can be set, by name."""
    layers = {name: layer for name, layer in surgical_layers(model).items() if layer.alpha_options}
    if not layers:
        known = norms_with(lambda config: config.alpha_option)
        raise SurgeonError(
            f"The network has no {listing(known, 'or')} layers, so it has no alpha to sweep.",
            f'Convert it first: surgeon.convert(model, "{known[0]}").',
        )
    return layers


class LambdaAxis:
    """The share of the auxiliary branch in the predictions of a split network: two passes for all values."""

    name = "lambda"
    original = 0.0

    def __init__(self, model: nn.Module, mixing: Mixing = Mixing.PROBABILITIES) -> None:
        self.model = model
        self.mixing = mixing
        self._found = mix_of(model)
        mix_branches(model, None)
        self._prefix = SharedPrefix(model, split_layers(model).values())

    def logits(self, images: Tensor, values: Sequence[Value]) -> list[Tensor]:
        temperature = temperature_of(self.model) or 1.0
        with self._prefix.over(images) as forward:
            main, aux = (self._pass(forward, name) * temperature for name in Branch if name is not Branch.HALVES)
        return [mixed(main, aux, float(cast("float", value)), self.mixing) / temperature for value in values]

    def passes(self, values: int) -> int:  # noqa: ARG002
        return 2

    def _pass(self, forward: Callable[[], Tensor], name: Branch) -> Tensor:
        with branch(self.model, name):
            predicted = forward()
        if not isinstance(predicted, Tensor) or predicted.dim() != 2:
            raise SurgeonError("lambda mixes the branches of networks that classify, and this one is not a classifier.")
        return predicted

    def set(self, value: Value) -> None:
        mix_branches(self.model, cast("float", value), self.mixing)

    def restore(self) -> None:
        if self._found is None:
            mix_branches(self.model, None)
        else:
            mix_branches(self.model, self._found.share, self._found.mixing)
