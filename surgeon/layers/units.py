"""What training asks of the units in a network: to draw by the step's number, whom to mix, and what becomes of targets.

A unit that has nothing to say to any of it may be any module.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from surgeon.data.seeding import seed_from


class TrainingUnit(nn.Module):
    """A unit with a part in training beyond its forward; what it does not override does nothing."""

    def reseed(self, *numbers: int) -> None:
        """Let everything that it draws with a generator of its own follow from its seed and these numbers."""

    def take_partners(self, permutation: Tensor) -> None:
        """In the next forward, example i is mixed with example permutation[i]: something else has chosen already."""

    def change_only(self, examples: slice) -> None:
        """In the next forward, leave all other examples of the batch as they are: the strong copies come last."""

    def mix_targets(self, targets: Tensor) -> Tensor:
        """Soft targets (N, classes) as the last forward has changed what its examples show."""
        return targets


def training_units(model: nn.Module) -> list[TrainingUnit]:
    """The units of a network that take part in training."""
    return [module for module in model.modules() if isinstance(module, TrainingUnit)]


def own_generator(seed: int | None) -> torch.Generator | None:
    """A generator that is copied with the network it belongs to; None stands for torch's."""
    return None if seed is None else torch.Generator().manual_seed(seed)


def reseed(generator: torch.Generator | None, seed: int | None, *numbers: int) -> None:
    """Begin a generator anew by its seed and these numbers; torch's own is left alone."""
    if generator is not None and seed is not None:
        generator.manual_seed(seed_from(seed, *numbers))
