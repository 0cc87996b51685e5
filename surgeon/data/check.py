"""Do the classes of a data set fit the outputs of a network, and which is which? Told before anything is computed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.core.media import Medium
from surgeon.data.images import ImageSet

if TYPE_CHECKING:
    from surgeon.models.origin import Preprocessing

WORDNET_NUMBER = re.compile(r"^n\d{8}\s+")
CODE = re.compile(r"(n\d{8}|\d+)$")


def check_medium(image_set: ImageSet, preprocessing: Preprocessing, model: str) -> None:
    """Refuse sound for a network that takes images, and the other way round."""
    if image_set.medium is not preprocessing.medium:
        raise SurgeonError(
            f"{image_set.name!r} holds {image_set.medium.samples}, but {model!r} takes {preprocessing.medium.samples}.",
            f"Fine-tune it on them first: surgeon finetune {model} --data …"
            if preprocessing.medium is Medium.IMAGE
            else "",
        )


def check_classes(
    image_set: ImageSet, num_outputs: int, model_class_names: Sequence[str] | None = None
) -> tuple[int, ...] | None:
    """Raise if labels cannot be outputs of the network, or mean other classes than its outputs.

    Where both have names, names decide: the data may have some of the network's classes, in any order.

    Args:
        image_set: The data.
        num_outputs: Of the network.
        model_class_names: Of its outputs, if they are known.

    Returns:
        All outputs of the network, those that are classes of the data first, in the order of the data; None if that is
        the order they have.
    """
    named = model_class_names and image_set.names_known and len(model_class_names) == num_outputs
    # n01440764 may well be a tench: codes and names cannot be compared.
    if model_class_names and named and _are_codes(image_set.class_names) == _are_codes(model_class_names):
        return _matched_by_name(image_set, model_class_names)
    if _is_complete(image_set) and len(image_set.class_names) != num_outputs:
        raise SurgeonError(
            f"{image_set.name!r} has {_classes(image_set)}, but the network has {count(num_outputs, 'output')}.",
            "Use the data the network was trained for, or fine-tune it on this data first. Fewer classes than outputs "
            "are matched by name, where both have names.",
        )
    largest = int(image_set.labels.max())
    if largest >= num_outputs:
        raise SurgeonError(
            f"{image_set.name!r} has labels up to {largest}, but the network has {count(num_outputs, 'output')}.",
            "Use the data the network was trained for.",
        )
    return None


def _is_complete(image_set: ImageSet) -> bool:
    """Whether the number of classes is known, not only bounded from below by the largest label.

    Bare integer labels may be a sample in which classes are missing (500 ImageNet images), which
    is fine. If instead every number up to the largest occurs, that is a whole set of classes.
    """
    if image_set.names_known:
        return True
    present = len(np.unique(image_set.labels))
    return present > 1 and present == len(image_set.class_names)


def _classes(image_set: ImageSet) -> str:
    number = len(image_set.class_names)
    present = set(np.unique(image_set.labels).tolist())
    empty = [repr(name) for label, name in enumerate(image_set.class_names) if label not in present]
    return f"{number:,} {'class' if number == 1 else 'classes'}" + (
        f" ({len(empty):,} without images: {listing(empty, limit=3)})" if empty else ""
    )


def _matched_by_name(image_set: ImageSet, model_class_names: Sequence[str]) -> tuple[int, ...] | None:
    ours, theirs = ([_plain(name) for name in names] for names in (image_set.class_names, model_class_names))
    if ours == theirs:
        return None
    places: dict[str, list[int]] = {}
    for place, name in enumerate(theirs):
        places.setdefault(name, []).append(place)
    if unknown := [name for name, plain in zip(image_set.class_names, ours, strict=True) if plain not in places]:
        raise SurgeonError(
            f"The network has no class {listing(map(repr, unknown), 'or', limit=3)}, which {image_set.name!r} has.",
            "Use the data the network was trained for, or fine-tune it on this data first.",
        )
    twice = [name for name in dict.fromkeys(ours) if ours.count(name) > 1 or len(places[name]) > 1]
    if twice:
        owner = repr(image_set.name) if ours.count(twice[0]) > 1 else "the network"
        raise SurgeonError(
            f"Classes cannot be matched by name: {owner} has several named {twice[0]!r}.",
            "Give each class a unique name.",
        )
    outputs = [places[name][0] for name in ours]
    return (*outputs, *(place for place in range(len(theirs)) if place not in set(outputs)))


def _are_codes(names: Sequence[str]) -> bool:
    return all(CODE.match(name) for name in names)


def _plain(name: str) -> str:
    """A class name without what differs between collections: WordNet number, case, separators, synonyms."""
    return " ".join(WORDNET_NUMBER.sub("", name).split(",")[0].replace("_", " ").replace("-", " ").casefold().split())
