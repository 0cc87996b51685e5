"""Do the classes of a data set fit the outputs of a network? Told before anything is computed."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from surgeon.core.errors import SurgeonError, count
from surgeon.data.images import ImageSet

WORDNET_NUMBER = re.compile(r"^n\d{8}\s+")
CODE = re.compile(r"(n\d{8}|\d+)$")


def check_classes(image_set: ImageSet, num_outputs: int, model_class_names: Sequence[str] | None = None) -> None:
    """Raise if labels cannot be outputs of the network, or mean other classes than its outputs."""
    largest = int(image_set.labels.max())
    if largest >= num_outputs:
        raise SurgeonError(
            f"{image_set.name!r} has labels up to {largest}, but the network has {count(num_outputs, 'output')}.",
            "Use the data the network was trained for.",
        )
    if _is_complete(image_set) and len(image_set.class_names) != num_outputs:
        raise SurgeonError(
            f"{image_set.name!r} has {_classes(image_set)}, but the network has {count(num_outputs, 'output')}.",
            "Use the data the network was trained for, or fine-tune it on this data first.",
        )
    if model_class_names and image_set.names_known and len(model_class_names) == num_outputs:
        _check_names(image_set, model_class_names)


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
    return f"{number:,} {'class' if number == 1 else 'classes'}"


def _check_names(image_set: ImageSet, model_class_names: Sequence[str]) -> None:
    if _are_codes(image_set.class_names) != _are_codes(model_class_names):
        return  # n01440764 may well be a tench: codes and names cannot be compared
    for number, (of_data, of_model) in enumerate(zip(image_set.class_names, model_class_names, strict=True)):
        if _plain(of_data) != _plain(of_model):
            order = sorted(map(_plain, image_set.class_names)) == sorted(map(_plain, model_class_names))
            raise SurgeonError(
                f"Class {number} is {of_data!r} in {image_set.name!r}, but {of_model!r} for the network.",
                "The classes are the same but in another order: sort those of the data as the network has them."
                if order
                else "Use the data the network was trained for.",
            )


def _are_codes(names: Sequence[str]) -> bool:
    return all(CODE.match(name) for name in names)


def _plain(name: str) -> str:
    """A class name without what differs between collections: WordNet number, case, separators, synonyms."""
    return " ".join(WORDNET_NUMBER.sub("", name).split(",")[0].replace("_", " ").replace("-", " ").casefold().split())
