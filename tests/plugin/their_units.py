"""The layer of their insert, in a module of its own: this one imports torch."""

from __future__ import annotations

import torch
from torch import Tensor

from surgeon.layers.units import TrainingUnit, own_generator, reseed


class Swap(TrainingUnit):
    """Examples swap their features, and their targets."""

    def __init__(self, p: float, seed: int | None) -> None:
        super().__init__()
        self.p, self.seed = p, seed
        self.generator = own_generator(seed)
        self.partners: Tensor | None = None
        self.last: Tensor | None = None
        self.seeds: list[tuple[int, ...]] = []

    def reseed(self, *numbers: int) -> None:
        self.seeds.append(numbers)
        reseed(self.generator, self.seed, *numbers)

    def take_partners(self, permutation: Tensor) -> None:
        self.partners = permutation

    def mix_targets(self, targets: Tensor) -> Tensor:
        return targets if self.last is None else targets[self.last]

    def forward(self, x: Tensor) -> Tensor:
        partners, self.partners, self.last = self.partners, None, None
        if not self.training or torch.rand((), generator=self.generator) >= self.p:
            return x
        self.last = partners if partners is not None else torch.randperm(len(x), generator=self.generator)
        return x[self.last]
