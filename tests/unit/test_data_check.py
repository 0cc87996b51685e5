"""Data whose classes are not those of the network is refused before anything is computed."""

from __future__ import annotations

import numpy as np
import pytest

from surgeon.core.errors import SurgeonError
from surgeon.data.check import check_classes
from surgeon.data.images import ImageSet, PixelArrays


def labelled(labels: list[int], class_names: list[str], names_known: bool = True) -> ImageSet:
    pixels = PixelArrays(np.zeros((len(labels), 2, 2), dtype=np.uint8))
    return ImageSet.over(pixels, labels, class_names, name="pets", split="test", names_known=names_known)


def test_fitting_classes_pass_even_if_some_do_not_occur() -> None:
    check_classes(labelled([0, 2], ["cat", "dog", "fox"]), 3, ["Cat", "dog, domestic dog", "fox"])


def test_another_number_of_classes() -> None:
    with pytest.raises(SurgeonError, match="'pets' has 2 classes, but the network has 1,000 outputs"):
        check_classes(labelled([0, 1], ["cat", "dog"]), 1000)


def test_an_empty_class_folder_is_named() -> None:
    with pytest.raises(SurgeonError, match=r"'pets' has 3 classes \(1 without images: 'dog'\), but the network has 2"):
        check_classes(labelled([0, 2], ["cat", "dog", "fox"]), 2)


def test_labels_beyond_the_outputs() -> None:
    with pytest.raises(SurgeonError, match="labels up to 5, but the network has 3 outputs"):
        check_classes(labelled([0, 5], [str(i) for i in range(6)], names_known=False), 3)


def test_bare_numbers_may_be_a_sample_of_the_classes_but_not_a_whole_smaller_set() -> None:
    check_classes(labelled([3, 40], [str(i) for i in range(41)], names_known=False), 100)
    with pytest.raises(SurgeonError, match="has 3 classes, but the network has 100 outputs"):
        check_classes(labelled([0, 1, 2], ["0", "1", "2"], names_known=False), 100)


def test_other_names() -> None:
    with pytest.raises(SurgeonError, match="The network has no class 'dog', which 'pets' has"):
        check_classes(labelled([0, 1], ["cat", "dog"]), 2, ["cat", "truck"])


def test_the_same_names_in_another_order() -> None:
    assert check_classes(labelled([0, 1], ["cat", "dog"]), 2, ["dog", "cat"]) == (1, 0)


def test_some_of_the_classes_are_matched_by_name_and_the_others_follow() -> None:
    pets = labelled([0, 1], ["Fox", "gold_fish"])
    assert check_classes(pets, 4, ["cat", "gold fish, Carassius", "dog", "fox"]) == (3, 1, 0, 2)


def test_the_same_names_in_the_same_order_need_no_matching() -> None:
    assert check_classes(labelled([0, 1], ["cat", "dog"]), 2, ["cat", "dog"]) is None


@pytest.mark.parametrize(
    ("data", "network", "told"),
    [
        (["crane"], ["crane, bird", "dog", "crane, machine"], "the network has several named 'crane'"),
        (["cat, wild", "cat, tame"], ["cat", "dog", "fox"], "'pets' has several named 'cat'"),
    ],
)
def test_names_that_stand_for_several_classes_are_refused(data: list[str], network: list[str], told: str) -> None:
    with pytest.raises(SurgeonError, match=told):
        check_classes(labelled([0], data), 3, network)


def test_wordnet_numbers_are_not_compared_with_names() -> None:
    check_classes(labelled([0], ["n01440764", "n01443537"]), 2, ["tench", "goldfish"])
    check_classes(labelled([0], ["n01440764 tench", "n01443537 gold_fish"]), 2, ["tench", "gold fish"])
