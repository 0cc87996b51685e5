"""What a step minimises: cross-entropy on soft targets, for every way in which examples can be mixed.

Cross-entropy is linear in the targets. So the sums of losses by which the papers state their methods
(one term for each example that has gone into another) are one cross-entropy with mixed targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surgeon.augment.consistency import jensen_shannon
from surgeon.augment.pipeline import Augmentation
from surgeon.layers.router import Branch
from surgeon.layers.units import TrainingUnit, training_units
from surgeon.surgery.branches import branch

Network = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Outcome:
    """The loss of a batch, and how many of how many examples were given their main label."""

    loss: Tensor
    correct: Tensor
    examples: int


@dataclass(frozen=True)
class Objective:
    """The loss of a batch of one, two or three copies of the same images.

    With `consistency` the predictions for all copies are to agree, the first of which is the clean one. Without it two
    copies are those of a network with two branches, each through its own.
    """

    model: nn.Module
    augmentations: Sequence[Augmentation]
    classes: int
    smoothing: float = 0.0
    consistency: float = 0.0

    def __call__(
        self, network: Network, copies: Sequence[Tensor], labels: Tensor, mixing: bool, generator: torch.Generator
    ) -> Outcome:
        hard = F.one_hot(labels, self.classes).float()
        images, targets = [], []
        for copy, augmentation in zip(copies, self.augmentations, strict=True):
            used = augmentation if mixing else augmentation.without_mixing()
            augmented = used.of_batch(copy, hard, generator, self._share_partners)
            images.append(augmented[0])
            targets.append(augmented[1])
        if len(images) > 1:
            self._keep_copies_apart(len(labels), len(images), generator)
        logits = self._predict(network, torch.cat(images) if len(images) > 1 else images[0])
        goal = torch.cat(targets)
        for unit in self._units:
            goal = unit.mix_targets(goal)
        if self.consistency:
            parts = logits.chunk(len(images))
            loss = self._cross_entropy(parts[0], goal.chunk(len(images))[0])
            loss = loss + self.consistency * jensen_shannon(parts)
        else:
            loss = self._cross_entropy(logits, goal)
        correct = (logits.argmax(1) == goal.argmax(1)).sum()
        return Outcome(loss, correct, len(logits))

    def _share_partners(self, permutation: Tensor) -> None:
        """Whom an example is mixed with is the same in the images and within the network."""
        for unit in self._units if len(self.augmentations) == 1 else ():
            unit.take_partners(permutation)

    def _keep_copies_apart(self, examples: int, copies: int, generator: torch.Generator) -> None:
        """Within the network, weakly augmented examples are not mixed with strongly augmented ones."""
        partners = torch.randperm(examples, generator=generator)
        for unit in self._units:
            unit.take_partners(torch.cat([partners + examples * copy for copy in range(copies)]))

    @property
    def _units(self) -> list[TrainingUnit]:
        return training_units(self.model)

    def _predict(self, network: Network, images: Tensor) -> Tensor:
        two_branches = len(self.augmentations) == 2 and not self.consistency
        with branch(self.model, Branch.HALVES) if two_branches else nullcontext():
            answer = network(images)
        # In training, Inception networks also answer with their auxiliary classifiers, which take no part here.
        return answer if isinstance(answer, Tensor) else cast("Tensor", answer[0])

    def _cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.smoothing:
            targets = targets * (1 - self.smoothing) + (1 - targets) * self.smoothing / (self.classes - 1)
        return F.cross_entropy(logits.float(), targets)
