"""What a step minimises: cross-entropy on soft targets, for every way in which examples can be mixed.

Cross-entropy is linear in the targets. So the sums of losses by which the papers state their methods
(mixup's two terms, the three of MoEx with CutMix) are one cross-entropy with mixed targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surgeon.augment.augmix.consistency import jensen_shannon
from surgeon.augment.pipeline import Augmentation
from surgeon.inserts.moex.layer import MomentExchange
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

    Two copies are those of a split network, each through its branch. Three are AugMix's: a clean one
    and two augmented ones, whose predictions are to agree.
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
        goal = self._exchanged(torch.cat(targets))
        if self.consistency:
            parts = logits.chunk(len(images))
            loss = self._cross_entropy(parts[0], goal.chunk(len(images))[0])
            loss = loss + self.consistency * jensen_shannon(parts)
        else:
            loss = self._cross_entropy(logits, goal)
        correct = (logits.argmax(1) == goal.argmax(1)).sum()
        return Outcome(loss, correct, len(logits))

    def _share_partners(self, permutation: Tensor) -> None:
        """Whom an example is mixed with is also whose moments it takes, so that it has three labels and not four."""
        for unit in self._units if len(self.augmentations) == 1 else ():
            unit.permutation = permutation

    def _keep_copies_apart(self, examples: int, copies: int, generator: torch.Generator) -> None:
        """Weakly augmented examples take no moments of strongly augmented ones."""
        partners = torch.randperm(examples, generator=generator)
        for unit in self._units:
            unit.permutation = torch.cat([partners + examples * copy for copy in range(copies)])

    @property
    def _units(self) -> list[MomentExchange]:
        return [module for module in self.model.modules() if isinstance(module, MomentExchange)]

    def _predict(self, network: Network, images: Tensor) -> Tensor:
        with branch(self.model, "halves") if len(self.augmentations) == 2 else nullcontext():
            answer = network(images)
        # In training, Inception networks also answer with their auxiliary classifiers, which take no part here.
        return answer if isinstance(answer, Tensor) else cast("Tensor", answer[0])

    def _exchanged(self, targets: Tensor) -> Tensor:
        """MoEx: an example that took the moments of another also takes a part of its targets."""
        for unit in self._units:
            if unit.last is not None:
                partners = targets[unit.last.permutation.to(targets.device)]
                targets = unit.last.lam * targets + (1 - unit.last.lam) * partners
        return targets

    def _cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.smoothing:
            targets = targets * (1 - self.smoothing) + (1 - targets) * self.smoothing / (self.classes - 1)
        return F.cross_entropy(logits.float(), targets)
