"""Images without labels to train on beside labelled ones: which they are, and their part of every batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.data.images import ImageSet
from surgeon.data.named_splits import MissingSplitError
from surgeon.data.stratified import limit
from surgeon.losses.base import UNLABELLED, ask, ask_with_unlabelled
from surgeon.measuring.choosing import TRAIN
from surgeon.measuring.preparation import InferenceRequest, open_images
from surgeon.training.recipe import Recipe
from surgeon.training.splits import Splits

SAME = "same"
"""In place of a DATA: the training images of the labelled data, all of them, without their labels."""
MOST_COMPARED = 100_000
"""So many images are read to find those that are in two sets; more would take too long."""


@dataclass(frozen=True)
class Unlabelled:
    """Images whose labels nobody looks at.

    Args:
        images: All of class 0.
        ratio: How many of them go with each labelled image.
        left_out: How many others there were that are validation or test images too.
        compared: Whether that was looked for.
    """

    images: ImageSet
    ratio: int
    left_out: int = 0
    compared: bool = True

    @property
    def sentence(self) -> str:
        """How many there are, and whether validation and test images are among them."""
        said = f"{count(len(self.images), 'unlabelled image')}, {self.ratio} with each labelled one."
        if self.left_out:
            said += f" {count(self.left_out, 'unlabelled image')} left out: validation or test images, byte for byte."
        if not self.compared:
            said += f" Whether validation or test images are among them is checked up to {MOST_COMPARED:,} images."
        return said


def fitting_unlabelled(recipe: Recipe, spec: str | None) -> Recipe:
    """The recipe with a term that looks at unlabelled images, if there are any; without them no term may need them."""
    if spec is not None:
        return recipe.model_copy(update={"loss": tuple(term.name for term in ask_with_unlabelled(recipe.loss))})
    if needing := [term.loss.name for term in ask(recipe.loss) if set(term.copies) & set(UNLABELLED)]:
        raise SurgeonError(
            f"The loss {listing(needing)} needs images without labels.",
            f"Pass --unlabelled DATA, or --unlabelled {SAME} for the training images without their labels.",
        )
    return recipe


def open_unlabelled(spec: str, request: InferenceRequest, splits: Splits, recipe: Recipe) -> Unlabelled:
    """Open images without their labels, and leave out those that judge the network.

    Args:
        spec: A DATA of the command line, or `same`.
        request: That of the labelled images.
        splits: The labelled images.
        recipe: Says how many are wanted.
    """
    wanted = replace(request, data=request.data if spec == SAME else spec, split=None, limit=None, labelled=False)
    images = _training_images(wanted)
    if images.medium is not splits.train.medium:
        raise SurgeonError(
            f"{images.name!r} holds {images.medium.samples}, the training data {splits.train.medium.samples}."
        )
    judging = [one for one in (splits.validation, splits.test) if one is not None]
    compared = len(images) + sum(map(len, judging)) <= MOST_COMPARED
    kept = images
    if compared:
        known = {digest for one in judging for digest in _digests(one)}
        kept = images.subset([n for n, digest in enumerate(_digests(images)) if digest is None or digest not in known])
        if not len(kept):
            raise SurgeonError(
                f"All of the {count(len(images), 'unlabelled image')} are validation or test images.",
                "Give others to learn from.",
            )
    left_out = len(images) - len(kept)
    if recipe.unlabelled_images is not None:
        kept = kept.subset(limit(kept.labels, recipe.unlabelled_images))
    return Unlabelled(kept, recipe.unlabelled_ratio, left_out, compared)


def _training_images(request: InferenceRequest) -> ImageSet:
    """The training images of a data set, or all of one that is not divided."""
    try:
        return open_images(replace(request, split=TRAIN))
    except MissingSplitError as error:
        if len(error.splits) > 1:
            raise SurgeonError(
                f"{request.data!r} has no split {TRAIN!r}, and it is not clear which of {listing(error.splits)} are "
                "the unlabelled images.",
                "Give the folder or file of one of them.",
            ) from None
        return open_images(request)


def _digests(images: ImageSet) -> Iterator[bytes | None]:
    """What tells each image from others, byte for byte; None for those that cannot be read."""
    for index in range(len(images)):
        content = images.bytes_or_nothing(index)
        yield hashlib.blake2b(content, digest_size=16).digest() if content else None
