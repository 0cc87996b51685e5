"""The losses and attacks of training, for a training loop of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surgeon.augment.mixing import soft
from surgeon.conditions.attack import one_attack
from surgeon.core.errors import SurgeonError, did_you_mean, listing
from surgeon.losses.base import UNLABELLED, Asked, Copy, Predicted, Predictions, ask, wide
from surgeon.models.origin import Preprocessing
from surgeon.surgery.apply import unwrapped
from surgeon.training.attack import TrainingAttack
from surgeon.training.objective import total


@dataclass(frozen=True)
class TrainingLoss:
    """The sum of terms, to be called with logits and targets.

    Args:
        terms: With their options.
    """

    terms: tuple[Asked, ...]

    @property
    def copies(self) -> tuple[str, ...]:
        """The copies of a batch that it needs."""
        needed = self._needed
        main = Copy.ADVERSARIAL if Copy.ADVERSARIAL in needed else Copy.WEAK
        needed = needed | set(self._chosen_by_terms or (main,))
        return tuple(copy.value for copy in Copy if copy in needed)

    def __call__(self, logits: Tensor | Mapping[str, Tensor], targets: Tensor | Mapping[str, Tensor]) -> Tensor:
        """The loss, a scalar.

        Args:
            logits: (N, classes); of several copies of the batch, by name: `{"weak": …, "adversarial": …}`.
            targets: Class numbers (N,) or shares (N, classes), the same for all copies unless they are given by name.
                Copies of unlabelled images have none.
        """
        given = self._named(logits)
        predicted = {}
        for copy, found in given.items():
            if found.dim() != 2 or not found.is_floating_point():
                raise SurgeonError(
                    f"Logits are floating-point numbers (N, classes), not {found.dtype} of {tuple(found.shape)}."
                )
            shares = torch.zeros_like(found) if copy in UNLABELLED else soft(_of(copy, targets), found.shape[1])
            if len(shares) != len(found):
                raise SurgeonError(f"There are {len(found)} predictions for {copy} copies, but {len(shares)} targets.")
            predicted[copy] = Predicted(wide(found), shares.to(wide(found)))
        return total(self.terms, Predictions(predicted, self._labelled(given)))

    def __str__(self) -> str:
        return " + ".join(term.name for term in self.terms)

    @property
    def _needed(self) -> set[Copy]:
        return {copy for term in self.terms for copy in term.copies}

    @property
    def _chosen_by_terms(self) -> tuple[Copy, ...]:
        """The copies whose labels count, where terms name them."""
        named = {copy for term in self.terms if term.loss.on_labels for copy in term.config.named_copies()}
        wishes = {term.loss.labels_on for term in self.terms if term.loss.labels_on is not None}
        return tuple(copy for copy in Copy if copy in (named or wishes))

    def _named(self, logits: Tensor | Mapping[str, Tensor]) -> dict[Copy, Tensor]:
        needed = self.copies
        if isinstance(logits, Tensor):
            if len(needed) > 1:
                raise SurgeonError(
                    f"The loss {self} needs predictions for {listing(needed)} copies.",
                    f"Give them by name: {{{', '.join(f'{name!r}: …' for name in needed)}}}.",
                )
            return {Copy(needed[0]): logits}
        if unknown := [name for name in logits if name not in list(Copy)]:
            raise SurgeonError(
                f"There is no copy {unknown[0]!r}.", did_you_mean(unknown[0], Copy) or f"Name {listing(Copy, 'or')}."
            )
        found = {copy: logits[copy.value] for copy in Copy if copy.value in logits}
        asked_for = self._needed | set(self._labelled(found))
        if missing := [copy for copy in Copy if copy in asked_for and copy not in found]:
            raise SurgeonError(
                f"The loss {self} needs predictions for {listing(needed)} copies, and there are none for "
                f"{listing(missing)}."
            )
        return found

    def _labelled(self, given: Mapping[Copy, Tensor]) -> tuple[Copy, ...]:
        """As in `surgeon finetune`: what terms choose, else adversarial or weak copies, and strong ones."""
        if self._chosen_by_terms:
            return self._chosen_by_terms
        main = next((copy for copy in (Copy.ADVERSARIAL, Copy.WEAK) if copy in given), Copy.WEAK)
        return (main, Copy.STRONG) if Copy.STRONG in given else (main,)


def loss(*specs: str) -> TrainingLoss:
    """A loss by its terms, for a training loop of one's own.

    Args:
        specs: As after `--loss`: `"cross-entropy:smoothing=0.1"`, `"logit-squeezing"`. Cross-entropy is added if none
            looks at the labels.

    What it makes is called with logits (N, classes) and targets, which are class numbers (N,) or shares (N, classes).
    Terms that compare copies of a batch need the logits of each: `loss.copies` names them.

    Examples:
        >>> criterion = surgeon.loss("alp:weight=0.5")
        >>> criterion.copies
        ('weak', 'adversarial')
        >>> criterion({"weak": model(images), "adversarial": model(attacked)}, labels).backward()
    """
    terms = tuple(ask(specs))
    wishes = {term.loss.labels_on: term.loss.name for term in terms if term.loss.labels_on is not None}
    named = any(term.loss.on_labels and term.config.named_copies() for term in terms)
    if len(wishes) > 1 and not named:
        raise SurgeonError(
            f"{listing(wishes.values())} disagree on the copies whose labels count.",
            'Name them, e.g. "cross-entropy:on=weak".',
        )
    return TrainingLoss(terms)


def attack(
    model: nn.Module,
    images: Tensor,
    targets: Tensor | None,
    spec: str = "pgd:steps=7",
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    seed: int | None = None,
) -> Tensor:
    """Adversarial copies of a batch, as adversarial training needs them.

    The network is attacked in evaluation mode, and afterwards is as it was: its mode, gradients and running
    statistics. A split network is attacked through the branch that it takes: `with surgeon.branch(model, "aux")`.

    Args:
        model: The network, in any mode.
        images: Normalised images (N, C, H, W), mixed or not.
        targets: Class numbers (N,) or shares (N, classes) to lead away from. None: what the network itself predicts, as
            in TRADES.
        spec: As after `--attack`. Distances are those of pixels from 0 to 1.
        mean: By which images are normalised, one number for each channel; without it 0.
        std: Likewise; without it 1.
        seed: Of what is random. None: drawn from torch's generator.

    Examples:
        >>> adversarial = surgeon.attack(model, images, labels, "pgd:eps=0.03,steps=7", mean=MEAN, std=STD)
    """
    if images.dim() != 4 or not images.is_floating_point():
        raise SurgeonError(f"An attack needs images (N, C, H, W) of floats, not {images.dtype} {tuple(images.shape)}.")
    channels, height, width = images.shape[1:]
    middle, spread = tuple(mean or (0.0,) * channels), tuple(std or (1.0,) * channels)
    if not len(middle) == len(spread) == channels:
        raise SurgeonError(
            f"The images have {channels} channels, but mean has {len(middle)} numbers and std {len(spread)}."
        )
    preprocessing = Preprocessing(input_size=(channels, height, width), mean=middle, std=spread)
    make = TrainingAttack(one_attack(spec), unwrapped(model), preprocessing, predictions=targets is None)
    drawn = int(torch.randint(2**62, ())) if seed is None else seed
    # With None, the attack replaces them by what the network predicts.
    wrong = torch.zeros(len(images), dtype=torch.int64) if targets is None else targets
    if wrong.dim() != (2 if wrong.is_floating_point() else 1) or len(wrong) != len(images):
        raise SurgeonError(
            f"{len(images)} images need class numbers (N,) or shares (N, classes), not {wrong.dtype} of "
            f"{tuple(wrong.shape)}."
        )
    return make(images, wrong, torch.arange(len(images)), drawn)


def _of(copy: Copy, targets: Tensor | Mapping[str, Tensor]) -> Tensor:
    if isinstance(targets, Tensor):
        return targets
    if copy.value not in targets:
        raise SurgeonError(f"There are no targets for {copy} copies.", "Give targets for every copy, or one tensor.")
    return targets[copy.value]
