"""ImageNet's classes by their WordNet numbers, for folders that hold only some of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from surgeon.core.errors import SurgeonError, listing

CLASSES = 1000


@lru_cache(maxsize=1)
def wordnet_numbers() -> tuple[str, ...]:
    """Of the thousand classes, in the order of the outputs of a network."""
    from timm.data import ImageNetInfo

    return tuple(ImageNetInfo("imagenet-1k").label_names())  # type: ignore[no-untyped-call]


def are_wordnet_numbers(names: Sequence[str]) -> bool:
    """Whether all names are of some of the thousand classes."""
    return set(names) <= set(wordnet_numbers())


def outputs_of(folders: Sequence[str], name: str) -> tuple[int, ...]:
    """Which outputs of an ImageNet network folders stand for; anything but WordNet numbers is refused."""
    numbers = {number: place for place, number in enumerate(wordnet_numbers())}
    unknown = [folder for folder in folders if folder not in numbers]
    if unknown:
        raise SurgeonError(
            f"{listing(unknown, limit=3)} in {name!r} is no class of ImageNet.",
            "Folders are named by WordNet numbers: n01440764.",
        )
    return tuple(numbers[folder] for folder in folders)
