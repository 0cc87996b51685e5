"""Which problem it is: told by what images are labelled with, by the network, or by whoever asks."""

from __future__ import annotations

from surgeon.core.errors import SurgeonError, listing
from surgeon.data.images import ImageSet
from surgeon.models.origin import Origin
from surgeon.problems.base import Problem
from surgeon.problems.classification import CLASSIFICATION
from surgeon.problems.segmentation import SEGMENTATION

PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in (CLASSIFICATION, SEGMENTATION)}


def named(name: str) -> Problem:
    """The problem that is called so."""
    if name not in PROBLEMS:
        raise SurgeonError(f"There is no problem {name!r}.", f"Choose {listing(PROBLEMS, 'or')}.")
    return PROBLEMS[name]


def problem_of(origin: Origin, images: ImageSet | None, asked: str | None = None) -> Problem:
    """What a network is to do with images.

    Args:
        origin: Of the network.
        images: Those that it will see, if they are labelled.
        asked: What somebody says.
    """
    if asked is not None:
        return named(asked)
    if images is not None and images.masks is not None:
        return SEGMENTATION
    return SEGMENTATION if is_segmenter(origin) else CLASSIFICATION


def is_segmenter(origin: Origin) -> bool:
    """Whether a network is one of torchvision's that segment."""
    source = origin.source
    if source is None or source.library != "torchvision":
        return False
    from torchvision import models

    module: str = models.get_model_builder(source.architecture).__module__
    return module.split(".")[2] == SEGMENTATION.name
