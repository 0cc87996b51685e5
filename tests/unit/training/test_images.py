"""What a step sees depends on the seed and the step alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from surgeon.augment.pipeline import build_augmentation
from surgeon.data.opening import open_data
from surgeon.models.origin import Preprocessing
from surgeon.training.images import AugmentedImages, Order, training_batches

GREY = Preprocessing(input_size=(1, 8, 8), mean=(0.5,), std=(0.5,))


def order(first: int = 0, rank: int = 0, processes: int = 1, seed: int = 0) -> list[list[tuple[int, int]]]:
    return list(Order(23, 6, seed, first, 9, rank, processes))


def test_an_epoch_sees_every_image_at_most_once_in_a_new_order() -> None:
    batches = order()
    assert [len(batch) for batch in batches] == [6] * 9
    epochs = [[place for batch in batches[start : start + 3] for place in batch] for start in (0, 3, 6)]
    for number, epoch in enumerate(epochs):
        assert {e for e, _ in epoch} == {number}
        assert len({index for _, index in epoch}) == 18
    assert [index for _, index in epochs[0]] != [index for _, index in epochs[1]]
    assert order(seed=1) != batches


def test_going_on_sees_what_would_have_come() -> None:
    assert order(first=4) == order()[4:]


def test_processes_share_every_batch() -> None:
    shares = zip(order(processes=2), order(rank=1, processes=2), strict=True)
    assert [one + other for one, other in shares] == order()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("spec", ["gaussian-noise", "gaussian-noise|randaugment|none"])
def test_augmented_images_do_not_depend_on_who_makes_them(spec: str, workers: int) -> None:
    digits = open_data("digits", "train")
    augmentations = (build_augmentation(["standard"], GREY), build_augmentation(["standard", spec], GREY))
    images = AugmentedImages(digits, augmentations, seed=0)
    later = list(training_batches(images, Order(len(digits), 6, 0, 2, 4), workers, skip_bad=False))
    images[(0, 5)]  # whatever was drawn in between
    all_steps = list(training_batches(images, Order(len(digits), 6, 0, 0, 4), 0, skip_bad=False))
    for one, other in zip(all_steps[2:], later, strict=True):
        assert torch.equal(one.indices, other.indices)
        assert all(torch.equal(*pair) for pair in zip(one.copies, other.copies, strict=True))
    first = all_steps[0]
    assert [copy.shape for copy in first.copies] == [(6, 1, 8, 8)] * 2
    assert not torch.equal(*first.copies)
    assert torch.equal(first.labels, torch.from_numpy(digits.labels)[first.indices])


def test_copies_share_their_crop() -> None:
    digits = open_data("digits", "train")
    images = AugmentedImages(digits, (build_augmentation(["standard"], GREY),) * 2, seed=0)
    examples = [images[(0, index)] for index in range(20)]
    assert all(torch.equal(*example.copies) for example in examples)  # type: ignore[union-attr]
    plain = [torch.from_numpy(np.array(digits.image(index)))[..., None] for index in range(20)]
    moved = [not torch.equal(e.copies[0], p) for e, p in zip(examples, plain, strict=True)]  # type: ignore[union-attr]
    assert any(moved)
