"""Registered conditions, applied to batches that a network is about to see."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from surgeon.checkpoint import open_model
from surgeon.conditions.attacks.network import attacked
from surgeon.conditions.base import Asked, check_medium
from surgeon.core.errors import SurgeonError
from surgeon.data.loaders import Batch
from surgeon.data.transforms import normalise
from surgeon.measuring.variants import Condition
from surgeon.models.origin import Preprocessing


@dataclass
class ConditionMaker:
    """Makes conditions for variants: one object for variants that see the same, so that it is applied once for all.

    Args:
        seed: By which everything random is drawn.
    """

    seed: int = 0
    _made: dict[tuple[object, ...], Condition] = field(default_factory=dict)
    _sources: dict[str, Target] = field(default_factory=dict)

    def make(
        self,
        asked: Asked,
        preprocessing: Preprocessing,
        network: nn.Module | None = None,
        outputs: tuple[int, ...] | None = None,
    ) -> Condition | None:
        """What a variant's `condition` has to be; None where images stay as they are.

        Args:
            asked: The condition.
            preprocessing: Of the network.
            network: The network itself, for conditions that need one; it has to be in evaluation mode when they run.
            outputs: Which of its outputs each class of the images is, if they are not in the same order.
        """
        if asked.name == "clean":
            return None
        check_medium(asked, preprocessing.medium)
        needed = network if asked.condition.needs_network else None
        if asked.condition.needs_network and network is None:
            raise SurgeonError(f"The condition {asked.name!r} is made for a network, and none was given.")
        source: str | None = getattr(asked.config, "source", None) if needed is not None else None
        numbering = outputs if needed is not None else None
        key = (asked.name, preprocessing, id(needed) if source is None else source, numbering)
        if key not in self._made:
            target = None if needed is None else Target(needed, preprocessing)
            if source is not None and target is not None:
                target = self._source(source, target)
            self._made[key] = Under(asked, preprocessing, self.seed, target, numbering)
        return self._made[key]

    def _source(self, name: str, shown_to: Target) -> Target:
        """Another network that is attacked in the place of the one that will see the images, opened once."""
        if name not in self._sources:
            loaded = open_model(name)
            preprocessing = loaded.origin.preprocessing or shown_to.preprocessing
            model = loaded.model.to(shown_to.device).to(memory_format=torch.channels_last)
            self._sources[name] = Target(model, preprocessing)
        source = self._sources[name]
        ours, theirs = (of.preprocessing.input_size for of in (source, shown_to))
        if ours != theirs:
            raise SurgeonError(
                f"The source {name!r} takes images of {_shape(ours)}, and the network that is to see them "
                f"takes {_shape(theirs)}.",
                "Give a source for images of the same size.",
            )
        return source


def _shape(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))


@dataclass(frozen=True)
class Target:
    """A network that a condition is made for, and what it expects of its images."""

    model: nn.Module
    preprocessing: Preprocessing

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return next((tensor.device for tensor in self.model.parameters()), torch.device("cpu"))


@dataclass(frozen=True, eq=False)
class Under:
    """Batches under a condition: normalisation is undone, the condition applied, and the pixels normalised again.

    What cannot be told from normalised numbers has come along with the batch: waveforms.
    """

    asked: Asked
    preprocessing: Preprocessing
    seed: int
    target: Target | None = None
    outputs: tuple[int, ...] | None = None
    """Which output of the target each label is, if not that of the same number."""

    def __call__(self, batch: Batch) -> Batch:
        reversible = self.preprocessing.is_reversible
        given = denormalise(batch.images, self.preprocessing) if reversible else batch.signals[self.preprocessing]
        pixels = given
        if batch.labels.dim() == 3:
            masks = self.asked.masks(pixels, batch.labels, batch.indices, self.seed)
            batch = replace(batch, labels=masks, masks={})
        with self._network() as network:
            if self.target is not None:
                pixels = pixels.to(self.target.device)
            labels = (
                batch.labels
                if self.outputs is None or batch.labels.dim() == 3
                else torch.tensor(self.outputs)[batch.labels]
            )
            changed = self.asked.apply(pixels, labels, batch.indices, self.seed, network)
        if changed.shape != given.shape:
            raise SurgeonError(
                f"The condition {self.asked.name!r} made {self.preprocessing.medium.noun}s of {tuple(changed.shape)} "
                f"out of {tuple(given.shape)}."
            )
        images = (renormalise if reversible else normalise)(changed, self.preprocessing)
        return replace(batch, images=images.contiguous(memory_format=torch.channels_last), prepared={}, signals={})

    def _network(self) -> AbstractContextManager[Callable[[Tensor], Tensor] | None]:
        """What an attack sees of the network, which is left as it was."""
        if self.target is None:
            return nullcontext()
        return attacked(self.target.model, self.target.preprocessing, self.target.device)


def denormalise(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Pixels from 0 to 1; those that were bytes are these bytes divided by 255, to the last bit."""
    return pixels_of(images, preprocessing).mul_(255).round_().clamp_(0, 255).div_(255)


def pixels_of(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Pixels, black 0 and white 1, also of images that were mixed and are no bytes any more."""
    mean, std = _statistics(images, preprocessing)
    return images.mul(std).add_(mean)


def renormalise(pixels: Tensor, preprocessing: Preprocessing) -> Tensor:
    """What a network sees of pixels from 0 to 1, as `data.transforms.normalise` does it; keeps gradients."""
    mean, std = _statistics(pixels, preprocessing)
    return (pixels - mean) / std


def _statistics(images: Tensor, preprocessing: Preprocessing) -> tuple[Tensor, Tensor]:
    mean, std = (
        torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (preprocessing.mean, preprocessing.std)
    )
    return mean, std
