"""What a step minimises: the sum of the recipe's terms, on the copies of the batch that they need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surgeon.layers.router import Branch
from surgeon.layers.units import TrainingUnit, training_units
from surgeon.losses.base import Asked, Copy, Predicted, Predictions, wide
from surgeon.problems.segmentation import (
    AUXILIARY_WEIGHT,
    auxiliary_outputs,
    labelled_pixels,
    main_output,
    upsampled,
)
from surgeon.surgery.branches import branch
from surgeon.training.copies import Copies, keep_apart

Network = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Given:
    """A batch, or a part of one.

    Args:
        images: Normalised, one tensor for each copy that is decoded.
        labels: Class numbers, or masks (N, H, W).
        indices: Of the images in their data set.
        unlabelled: Other images, without labels: one tensor for each copy of them.
    """

    images: Sequence[Tensor]
    labels: Tensor
    indices: Tensor
    unlabelled: Sequence[Tensor] = ()


@dataclass(frozen=True)
class Draws:
    """What is random in a step.

    Args:
        generator: For whatever is done to batches.
        seed: Of attacks, whose draws also depend on the image.
        mixing: Whether examples are mixed.
    """

    generator: torch.Generator
    seed: int = 0
    mixing: bool = True


@dataclass(frozen=True)
class Outcome:
    """The loss of a batch, and how many of how many examples whose labels count were given their main label.

    `shares` are what terms tell besides, by name.
    """

    loss: Tensor
    correct: Tensor
    examples: int
    shares: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Objective:
    """The loss of a batch: the sum of terms."""

    model: nn.Module
    terms: Sequence[Asked]
    copies: Copies
    classes: int

    def __call__(self, network: Network, given: Given, draws: Draws) -> Outcome:
        if given.labels.dim() == 3:
            return self._of_masks(network, given, draws)
        made = self._made(given, draws)
        images = [made[copy].images for copy in self.copies.seen]
        goals = [made[copy].targets for copy in self.copies.seen]
        if self.copies.unlabelled:
            first = sum(len(one) for one in images[: self.copies.first_strong])
            for unit in self._units:
                unit.change_only(slice(first, None))
        logits = self._predict(network, torch.cat(images) if len(images) > 1 else images[0])
        goal = torch.cat(goals)
        for unit in self._units:
            goal = unit.mix_targets(goal)
        sizes = [len(one) for one in images]
        parts = map(Predicted, torch.split(wide(logits), sizes), torch.split(goal, sizes))
        predictions = Predictions(dict(zip(self.copies.seen, parts, strict=True)), self.copies.labelled)
        counted = predictions.over(self.copies.labelled)
        correct = (counted.logits.argmax(1) == counted.targets.argmax(1)).sum()
        shares = {name: share for term in self.terms for name, share in term.observe(predictions).items()}
        return Outcome(total(self.terms, predictions), correct, len(counted.logits), shares)

    def _of_masks(self, network: Network, given: Given, draws: Draws) -> Outcome:
        """Every pixel with a class is an example. Auxiliary heads count with a weight of their own."""
        (images,), (augmentation,) = given.images, self.copies.augmentations.values()
        images, _ = augmentation.of_batch(images, torch.empty(len(images), 0), draws.generator)
        self._choose_partners([], len(images), draws.generator)
        answer = network(images)
        heads = [(main_output(answer, len(images)), 1.0)]
        heads += [(logits, AUXILIARY_WEIGHT) for logits in auxiliary_outputs(answer)]
        loss, outcomes = torch.zeros((), device=images.device), []
        for output, weight in heads:
            logits, targets = labelled_pixels(wide(upsampled(output, images)), given.labels)
            outcomes.append((logits, targets))
            if len(logits):  # not void everywhere
                predictions = Predictions({Copy.WEAK: Predicted(logits, targets)}, (Copy.WEAK,))
                loss = loss + weight * total(self.terms, predictions)
            else:
                loss = loss + 0 * output.sum()
        logits, targets = outcomes[0]
        correct = (logits.argmax(1) == targets.argmax(1)).sum()
        return Outcome(loss, correct, len(logits))

    def _made(self, given: Given, draws: Draws) -> dict[Copy, _Made]:
        """Every copy that the network will see, with its targets; and the weak one, if others are made of it."""
        hard = F.one_hot(given.labels, self.classes).float()
        made: dict[Copy, _Made] = {}
        partners: list[Tensor] = []
        for (copy, augmentation), images in zip(self.copies.augmentations.items(), given.images, strict=True):
            used = augmentation if draws.mixing else augmentation.without_mixing()
            made[copy] = _Made(*used.of_batch(images, hard, draws.generator, partners.append))
        if (attack := self.copies.attack) is not None:
            weak = made[Copy.WEAK]
            made[Copy.ADVERSARIAL] = replace(weak, images=attack(weak.images, weak.targets, given.indices, draws.seed))
        if self.copies.unlabelled:
            made |= self._made_unlabelled(given.unlabelled, draws.generator)
        else:
            self._choose_partners(partners, len(given.labels), draws.generator)
        return made

    def _made_unlabelled(self, unlabelled: Sequence[Tensor], generator: torch.Generator) -> dict[Copy, _Made]:
        unknown = torch.zeros(len(unlabelled[0]), self.classes, device=unlabelled[0].device)
        return {
            copy: _Made(*augmentation.of_batch(images, unknown, generator))
            for (copy, augmentation), images in zip(self.copies.unlabelled.items(), unlabelled, strict=True)
        }

    def _choose_partners(self, told: Sequence[Tensor], examples: int, generator: torch.Generator) -> None:
        """Within the network, nobody is mixed with an example of another copy.

        Whom an example is mixed with is the same in the images and within the network, where all are of one copy.
        """
        one_decoded, copies = len(self.copies.augmentations) == 1, len(self.copies.seen)
        if one_decoded and copies == 1 and not told:
            return
        partners = told[-1] if one_decoded and told else torch.randperm(examples, generator=generator)
        for unit in self._units:
            unit.take_partners(keep_apart(partners, copies))

    @property
    def _units(self) -> list[TrainingUnit]:
        return training_units(self.model)

    def _predict(self, network: Network, images: Tensor) -> Tensor:
        with branch(self.model, Branch.HALVES) if self.copies.branches else nullcontext():
            answer = network(images)
        # In training, Inception networks also answer with their auxiliary classifiers, which take no part here.
        return answer if isinstance(answer, Tensor) else cast("Tensor", answer[0])


@dataclass(frozen=True)
class _Made:
    images: Tensor
    targets: Tensor


def total(terms: Sequence[Asked], predictions: Predictions) -> Tensor:
    """The sum of all terms; those that compare with labels come first, for others may be a share of them."""
    label_loss = torch.stack([term.compute(predictions) for term in terms if term.loss.on_labels]).sum()
    known = replace(predictions, label_loss=label_loss.detach())
    others = [term.compute(known) for term in terms if not term.loss.on_labels]
    return label_loss + torch.stack(others).sum() if others else label_loss
