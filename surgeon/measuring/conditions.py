"""Registered conditions, applied to batches that a network is about to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from surgeon.conditions.base import Asked
from surgeon.core.errors import SurgeonError
from surgeon.data.loaders import Batch
from surgeon.measuring.variants import Condition
from surgeon.models.sources import Preprocessing


@dataclass
class ConditionMaker:
    """Makes conditions for variants: one object for variants that see the same, so that it is applied once for all.

    Args:
        seed: By which everything random is drawn.
    """

    seed: int = 0
    _made: dict[tuple[object, ...], Condition] = field(default_factory=dict)

    def make(self, asked: Asked, preprocessing: Preprocessing, network: nn.Module | None = None) -> Condition | None:
        """What a variant's `condition` has to be; None where images stay as they are.

        Args:
            asked: The condition.
            preprocessing: Of the network.
            network: The network itself, for conditions that need one; it has to be in evaluation mode when they run.
        """
        if asked.name == "clean":
            return None
        needed = network if asked.condition.needs_network else None
        if asked.condition.needs_network and network is None:
            raise SurgeonError(f"The condition {asked.name!r} is made for a network, and none was given.")
        key = (asked.name, preprocessing, id(needed))
        if key not in self._made:
            self._made[key] = Under(asked, preprocessing, self.seed, needed)
        return self._made[key]


@dataclass(frozen=True, eq=False)
class Under:
    """Batches under a condition: normalisation is undone, the condition applied, and the pixels normalised again."""

    asked: Asked
    preprocessing: Preprocessing
    seed: int
    network: nn.Module | None = None

    def __call__(self, batch: Batch) -> Batch:
        pixels = denormalise(batch.images, self.preprocessing)
        changed = self.asked.apply(pixels, batch.labels, batch.indices, self.seed, self._from_pixels())
        if changed.shape != batch.images.shape:
            raise SurgeonError(
                f"The condition {self.asked.name!r} made images of {tuple(changed.shape)} out of "
                f"{tuple(batch.images.shape)}."
            )
        images = renormalise(changed, self.preprocessing)
        return replace(batch, images=images.contiguous(memory_format=torch.channels_last), prepared={})

    def _from_pixels(self) -> Callable[[Tensor], Tensor] | None:
        if (network := self.network) is None:
            return None

        def logits(pixels: Tensor) -> Tensor:
            found: Tensor = network(renormalise(pixels, self.preprocessing))
            return found

        return logits


def denormalise(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Pixels from 0 to 1; those that were bytes are these bytes divided by 255, to the last bit."""
    mean, std = _statistics(images, preprocessing)
    return images.mul(std).add_(mean).mul_(255).round_().clamp_(0, 255).div_(255)


def renormalise(pixels: Tensor, preprocessing: Preprocessing) -> Tensor:
    """What a network sees of pixels from 0 to 1, as `data.transforms.normalise` does it; keeps gradients."""
    mean, std = _statistics(pixels, preprocessing)
    return (pixels - mean) / std


def _statistics(images: Tensor, preprocessing: Preprocessing) -> tuple[Tensor, Tensor]:
    mean, std = (
        torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (preprocessing.mean, preprocessing.std)
    )
    return mean, std
