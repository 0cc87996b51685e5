"""The units that exchange style in training, and who of a network's units acts in a step.

A compiled network has a graph break at each unit in training, and none in evaluation: which units act
is drawn in Python, and a graph for every choice of them would be too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.core.private import remove_hooks
from surgeon.inserts.crossnorm.styles import (
    cross_normalise,
    cross_normalise_channels,
    cross_normalise_valid,
    random_box,
)
from surgeon.layers import symbolic
from surgeon.layers.padding import Padding
from surgeon.layers.recomputation import Repeatable
from surgeon.layers.units import TrainingUnit, own_generator, reseed


class Turns:
    """Draws, for each training forward of one network, which of its units act."""

    def __init__(self, *, active: int, p: float, seed: int | None) -> None:
        self.active = active
        self.p = p
        self.seed = seed
        self.units = 1
        self.generator = own_generator(seed)
        self.acting: frozenset[int] | None = None
        self._draws = Repeatable()

    def begin(self) -> None:
        """A forward of the whole network begins."""
        with self._draws.drawing(self.generator):
            some = float(torch.rand((), generator=self.generator)) < self.p
            order = torch.randperm(self.units, generator=self.generator).tolist()
        self.acting = frozenset(order[: self.active] if some else ())

    def acts(self, unit: int, alone: bool = False) -> bool:
        if alone or self.acting is None:  # a part of the network is used by itself: as often, but each for itself
            share = self.p * min(1.0, self.active / self.units)
            return float(torch.rand((), generator=self.generator)) < share
        return unit in self.acting

    @property
    def settings(self) -> tuple[int, float, int | None]:
        return self.active, self.p, self.seed

    def anew(self) -> Turns:
        return Turns(active=self.active, p=self.p, seed=self.seed)


ALL = slice(None)


class BeginStep:
    """A forward pre-hook of the whole network."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def __call__(self, model: nn.Module, inputs: Any) -> None:  # noqa: ARG002
        if model.training:
            self._begin()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _begin(self) -> None:
        self.turns.begin()


class CrossNorm(TrainingUnit):
    """One unit: the identity in evaluation, and in training when it is not its turn."""

    def __init__(
        self, turns: Turns, *, mode: str = "two-instance", crop: str = "neither", beta: float = 1.0, index: int = 0
    ) -> None:
        super().__init__()
        self.turns = turns
        self.mode = mode
        self.crop = crop
        self.beta = beta
        self.index = index
        self.changed = ALL
        self._draws = Repeatable()
        self._padding = Padding()

    def change_only(self, examples: slice) -> None:
        """Exchange styles among these examples of the next batch alone."""
        self.changed = examples

    def reseed(self, *numbers: int) -> None:
        """Draw by these numbers from now on, together with all that take turns with it."""
        reseed(self.turns.generator, self.turns.seed, *numbers)

    def forward(self, x: Tensor) -> Tensor:
        if symbolic.traced(x):
            return symbolic.step(restyle_alone, self, x)
        return self._restyle(x, alone=False) if self.training else x

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _restyle(self, x: Tensor, alone: bool) -> Tensor:
        mask = self._padding.of(x)
        with self._draws.drawing(self.turns.generator):
            if not self.turns.acts(self.index, alone):
                return x
            if self.changed == ALL:
                return self._restyled(x, mask, self.turns.generator)
            restyled = x.clone()
            of_these = None if mask is None else mask[self.changed]
            restyled[self.changed] = self._restyled(x[self.changed], of_these, self.turns.generator)
            return restyled

    def _restyled(self, x: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        if mask is not None and self.crop != "neither":
            raise SurgeonError(f"crossnorm with crop={self.crop} cuts boxes, which may be padding.", "Leave crop out.")
        if self.mode == "one-instance":
            return cross_normalise_channels(x, torch.randperm(x.shape[1], generator=generator).to(x.device), mask)
        permutation = torch.randperm(len(x), generator=generator).to(x.device)
        if mask is not None:
            return cross_normalise_valid(x, permutation, mask)
        style, content = (
            random_box(x.shape[2], x.shape[3], self.beta, generator) if self.crop in (part, "both") else None
            for part in ("style", "content")
        )
        return cross_normalise(x, permutation, style, content)

    def extra_repr(self) -> str:
        return f"{self.mode}, crop={self.crop}, active={self.turns.active}, p={self.turns.p}"


def restyle_alone(unit: CrossNorm, x: Tensor) -> Tensor:
    """What the unit does in a traced network, which runs none of the network's own hooks: no step begins there."""
    return unit._restyle(x, alone=True) if unit.training else x


def take_turns(model: nn.Module, units: Sequence[nn.Module]) -> None:
    """Let units of the same settings take turns, beginning whenever the network is called."""
    remove_hooks(model, BeginStep)
    shared: dict[Any, Turns] = {}
    members: dict[Any, int] = {}
    for unit in units:
        assert isinstance(unit, CrossNorm)
        settings = unit.turns.settings
        unit.turns = shared.setdefault(settings, unit.turns.anew())
        unit.index = members.get(settings, 0)
        members[settings] = unit.turns.units = unit.index + 1
    for turns in shared.values():
        # Before all others: one of the units may itself be a hook of the network, on its input.
        model.register_forward_pre_hook(BeginStep(turns), prepend=True)
