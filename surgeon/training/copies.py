"""Which copies of its images a step makes, how each is made, and which the network sees.

Terms of the loss say what they need. Some copies are augmented while images are decoded, others are made by attacking
those; some take the auxiliary branch of a split network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from surgeon.augment.base import CROPS
from surgeon.augment.pipeline import Augmentation, build_augmentation
from surgeon.conditions.attack import one_attack
from surgeon.conditions.base import check_medium
from surgeon.core.errors import SurgeonError, listing
from surgeon.layers.units import TrainingUnit, training_units
from surgeon.losses.base import Asked, Copy, ask
from surgeon.models.origin import Preprocessing
from surgeon.training.attack import TrainingAttack
from surgeon.training.keys import attack_among
from surgeon.training.recipe import Recipe

DECODED = (Copy.CLEAN, Copy.WEAK, Copy.SECOND, Copy.STRONG)


@dataclass(frozen=True)
class Copies:
    """The copies of a step.

    Args:
        augmentations: How each copy is made that is decoded, in this order.
        attack: Makes the adversarial copies, out of weak ones.
        seen: The copies that the network sees, in this order: those for the main branch first.
        labelled: Those whose labels count.
        branches: Whether the second half of them takes the auxiliary branch.
    """

    augmentations: Mapping[Copy, Augmentation]
    seen: tuple[Copy, ...] = (Copy.WEAK,)
    labelled: tuple[Copy, ...] = (Copy.WEAK,)
    attack: TrainingAttack | None = None
    branches: bool = False
    unlabelled: Mapping[Copy, Augmentation] = field(default_factory=dict)
    """How the copies of unlabelled images are made, if there are any."""

    @property
    def first_strong(self) -> int:
        """Where unlabelled images are seen: the place from which on all copies are strong ones."""
        return len(self.seen) // 2 if self.branches else self.seen.index(Copy.UNLABELLED_STRONG)


def plan_copies(
    recipe: Recipe, model: nn.Module, preprocessing: Preprocessing, branches: bool, *, masks: bool = False
) -> Copies:
    """The copies that a recipe asks for, of images with masks or without."""
    terms = ask(recipe.loss)
    strong = attack_among(recipe.strong) if branches else None
    if recipe.attack is not None and strong is not None:
        raise SurgeonError(
            f"attack={recipe.attack!r} and strong={strong!r} both make adversarial copies.",
            "With attack they take the main branch, with strong the auxiliary one: give one of them.",
        )
    takes_auxiliary = Copy.STRONG if strong is None else Copy.ADVERSARIAL
    labelled = _labelled(terms, recipe.attack is not None, takes_auxiliary if branches else None)
    needed = {*labelled, *(copy for term in terms for copy in term.copies)}
    auxiliary = [takes_auxiliary] if branches and takes_auxiliary in needed else []
    if branches and Copy.UNLABELLED_STRONG in needed:
        auxiliary.append(Copy.UNLABELLED_STRONG)
    seen = (*(copy for copy in Copy if copy in needed and copy not in auxiliary), *auxiliary)
    spec = recipe.attack or strong
    _check_seen(terms, seen, auxiliary, attacked=spec is not None)
    attack = None
    if spec is not None:
        check_medium(one_attack(spec), preprocessing.medium)
        on_predictions = any(term.loss.attacks_predictions for term in terms)
        attack = TrainingAttack(one_attack(spec), model, preprocessing, strong is not None, on_predictions)
    if masks and seen != (Copy.WEAK,):
        raise SurgeonError(
            f"Images with masks are seen in one copy, and this recipe asks for {listing(seen)} ones.",
            "Leave out attacks, split layers and terms of the loss that compare copies.",
        )
    augmentations = _augmentations(recipe, preprocessing, seen, masks)
    if Copy.SECOND in seen and augmentations[Copy.WEAK].mixing:
        names = listing(term.loss.name for term in terms if Copy.SECOND in term.copies)
        raise SurgeonError(
            f"The loss {names} compares copies of an image, but each would be mixed with another image.",
            "Leave out the mix, or that term.",
        )
    unlabelled = _unlabelled(recipe, preprocessing, model) if Copy.UNLABELLED_STRONG in seen else {}
    return Copies(augmentations, seen, labelled, attack, bool(auxiliary), unlabelled)


def _labelled(terms: Sequence[Asked], attacked: bool, auxiliary: Copy | None) -> tuple[Copy, ...]:
    """The copies whose labels count: those that terms name, or one for each branch."""
    named = {copy for term in terms if term.loss.on_labels for copy in term.config.named_copies()}
    if named:
        return tuple(copy for copy in Copy if copy in named)
    wishes = {term.loss.labels_on: term.loss.name for term in terms if term.loss.labels_on is not None}
    if len(wishes) > 1:
        names = listing(wishes.values())
        raise SurgeonError(
            f"{names} disagree on the copies whose labels count.", "Name them, e.g. --loss cross-entropy:on=weak."
        )
    default = Copy.ADVERSARIAL if attacked else Copy.WEAK
    main = next((copy for copy in wishes if copy is not None), default)
    return (main,) if auxiliary is None else (main, auxiliary)


def _check_seen(terms: Sequence[Asked], seen: Sequence[Copy], auxiliary: Sequence[Copy], attacked: bool) -> None:
    if Copy.ADVERSARIAL in seen and not attacked:
        names = listing(term.name for term in terms if Copy.ADVERSARIAL in term.copies)
        raise SurgeonError(
            f"The loss {names} needs adversarial copies, and no attack makes them.",
            "Name an attack: --attack pgd:eps=0.03,steps=7.",
        )
    if attacked and Copy.ADVERSARIAL not in seen:
        raise SurgeonError(
            "An attack makes adversarial copies, and no term of the loss looks at them.",
            "Leave out the attack, or name them: --loss cross-entropy:on=weak+adversarial.",
        )
    if Copy.STRONG in seen and Copy.STRONG not in auxiliary:
        raise SurgeonError(
            "A term of the loss needs strong copies, which take the auxiliary branch, and the network has none.",
            "Give it one: --bn split.",
        )
    main = [copy for copy in seen if copy not in auxiliary]
    if auxiliary and len(main) != len(auxiliary):
        raise SurgeonError(
            f"A split network takes as many copies through its main branch as through its auxiliary one, but "
            f"{listing(main)} would take the first and {listing(auxiliary)} the second.",
            "Choose terms that need one copy for each branch.",
        )


def _augmentations(
    recipe: Recipe, preprocessing: Preprocessing, seen: Sequence[Copy], masks: bool
) -> dict[Copy, Augmentation]:
    """How each decoded copy is made, in the order in which the network sees them."""
    crop = CROPS[preprocessing.medium]
    given = build_augmentation(recipe.augment, preprocessing, crop, masks=masks)
    decoded = {copy for copy in seen if copy in DECODED}
    if Copy.ADVERSARIAL in seen:
        decoded.add(Copy.WEAK)
    made = {
        Copy.CLEAN: lambda: replace(given, image=(), batch=(), mixing=()),
        Copy.WEAK: lambda: given,
        Copy.SECOND: lambda: given,
        Copy.STRONG: lambda: build_augmentation(recipe.strong, preprocessing, crop),
    }
    return {copy: made[copy]() for copy in DECODED if copy in decoded}


def _unlabelled(recipe: Recipe, preprocessing: Preprocessing, model: nn.Module) -> dict[Copy, Augmentation]:
    """How both copies of unlabelled images are made: each shows one image, whose label nobody knows."""
    if attack := attack_among(recipe.strong):
        raise SurgeonError(
            f"strong={attack!r} attacks images away from their labels, and unlabelled ones have none.",
            "Augment their strong copies: --strong strong.",
        )
    crop = CROPS[preprocessing.medium]
    strong = build_augmentation(recipe.strong, preprocessing, crop)
    if strong.mixing:
        raise SurgeonError(
            f"strong={listing(recipe.strong)} mixes examples, and of unlabelled images it cannot mix the labels.",
            "Leave the mix to --augment, which is for the labelled images.",
        )
    mixing = [unit for unit in training_units(model) if type(unit).mix_targets is not TrainingUnit.mix_targets]
    if mixing:
        raise SurgeonError(
            f"{type(mixing[0]).__name__} units mix examples within the network, those without labels too, and cannot "
            "mix labels that nobody knows.",
            "Leave out that insert, or the unlabelled images.",
        )
    given = build_augmentation(recipe.augment, preprocessing, crop)
    weak = replace(given, image=(), batch=(), mixing=())
    return {Copy.UNLABELLED_WEAK: weak, Copy.UNLABELLED_STRONG: strong}


def keep_apart(partners: Tensor, copies: int) -> Tensor:
    """Partners of one copy as those of several, one after the other: nobody's partner is in another copy."""
    return torch.cat([partners + len(partners) * number for number in range(copies)])
