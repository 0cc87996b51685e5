"""Chains of augmentations, and the choice of one for each batch or each image."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from surgeon.augment.apply import augment_singly
from surgeon.augment.base import Kind, augments
from surgeon.augment.mixing import Mix, soft
from surgeon.augment.pipeline import OneForEachImage, build_augmentation, mixer
from surgeon.core.errors import SurgeonError
from surgeon.core.media import Medium
from surgeon.data.seeding import seeded
from surgeon.models.origin import Preprocessing
from tests.helpers import randn

PREPROCESSING = Preprocessing(input_size=(3, 8, 8), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
IMAGES, TARGETS = randn(6, 3, 8, 8), soft(torch.arange(6), 6)
IMAGE_AUGMENTS = [
    name
    for name in augments
    if augments[name].kind in (Kind.IMAGE, Kind.GEOMETRY) and Medium.IMAGE in augments[name].media
]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_mixes_run_before_what_keeps_labels_whatever_the_order() -> None:
    results = []
    for specs in (["vh-mixup:p=0.5", "cutout:size=4"], ["cutout:size=4", "vh-mixup:p=0.5"]):
        chain = build_augmentation(specs, PREPROCESSING)
        assert len(chain.mixing) == len(chain.batch) == 1
        results.append(chain.of_batch(IMAGES, TARGETS, generator()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    shared = generator()
    by_hand = chain.batch[0](*chain.mixing[0](IMAGES, TARGETS, shared), shared)
    assert torch.equal(results[0][0], by_hand[0])
    assert torch.equal(results[0][1], by_hand[1])


def test_several_mixes_are_kept_in_order() -> None:
    names = ["mixup", "cutmix", "random-rows"]
    chain = build_augmentation(names, PREPROCESSING)
    assert [mix.name for mix in chain.mixing if isinstance(mix, Mix)] == names


def test_options_reach_the_operation() -> None:
    (mix,) = build_augmentation(["cutmix:p=0.25,alpha=0.4"], PREPROCESSING).mixing
    assert isinstance(mix, Mix)
    assert (mix.config.p, mix.config.model_dump()["alpha"]) == (0.25, 0.4)


def test_without_mixing_only_labels_of_one_class_remain() -> None:
    chain = build_augmentation(["mixup", "cutout:size=4", "cutmix|none"], PREPROCESSING)
    assert (chain.of_batch(IMAGES, TARGETS, generator())[1].max(1).values < 1).any()
    last = chain.without_mixing()
    images, targets = last.of_batch(IMAGES, TARGETS, generator())
    assert torch.equal(targets, TARGETS)
    assert not torch.equal(images, IMAGES)  # cut out of
    assert len(chain.mixing) == 2  # unchanged


def test_nothing_asked_for_changes_nothing() -> None:
    images, targets = build_augmentation([], PREPROCESSING).of_batch(IMAGES, TARGETS, None)
    assert images is IMAGES
    assert targets is TARGETS


def test_partners_are_told_also_by_a_choice() -> None:
    chain = build_augmentation(["cutmix|none"], PREPROCESSING)
    outcomes = set()
    for seed in range(8):
        told: list[torch.Tensor] = []
        _, targets = chain.of_batch(IMAGES, TARGETS, generator(seed), told.append)
        assert torch.equal(targets, chain.of_batch(IMAGES, TARGETS, generator(seed))[1])
        outcomes.add(len(told))
        for partners in told:
            assert torch.equal(targets * (1 - TARGETS), targets * soft(partners, 6))
    assert outcomes == {0, 1}


def test_a_choice_takes_each_at_times_and_mixes_nothing_for_none() -> None:
    mix = mixer("vertical-concat|cutmix|none", classes=6)
    kinds = {"none": 0, "vertical-concat": 0, "cutmix": 0}
    for seed in range(120):
        images, _ = mix(torch.arange(40.0).view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous(), torch.zeros(40).long(),
                        generator(seed))  # fmt: skip
        if (images == torch.arange(40.0).view(-1, 1, 1, 1)).all():
            kinds["none"] += 1
        else:
            kinds["vertical-concat" if (images == images[..., :1]).all() else "cutmix"] += 1
    assert all(20 < count < 60 for count in kinds.values()), kinds


def test_a_choice_follows_the_seed() -> None:
    mix = mixer("vh-mixup|cutmix|none", classes=6)
    for seed in range(9):
        first, again = (mix(IMAGES, torch.arange(6), generator(seed))[0] for _ in range(2))
        assert torch.equal(first, again)


def test_a_choice_that_keeps_labels_is_not_mixing() -> None:
    chain = build_augmentation(["cutout:size=4|none"], PREPROCESSING)
    assert len(chain.batch) == 1
    assert not chain.mixing
    assert len(build_augmentation(["cutout|cutmix"], PREPROCESSING).mixing) == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("vh-mixpu", "Did you mean.*vh-mixup"),
        ("cutmix:alhpa=2", "Did you mean alpha"),
        ("cutmix:alpha=0", "alpha='0'"),
        ("cutmix:p=1.5", "p='1.5'"),
        ("cutmix:p", "key=value"),
        ("cutmix|vh-mixpu", "Did you mean.*vh-mixup"),
        ("random-square:alpha=1", "no option 'alpha'"),
    ],
)
def test_mistakes_are_told_before_any_work(spec: str, message: str) -> None:
    with pytest.raises(SurgeonError, match=message):
        build_augmentation(["mixup", spec], PREPROCESSING)
    with pytest.raises(SurgeonError, match=message):
        mixer("mixup", spec, classes=6)


@pytest.mark.parametrize("name", IMAGE_AUGMENTS)
def test_only_batches_can_be_mixed(name: str) -> None:
    with pytest.raises(SurgeonError, match=r"cannot choose: .* for each image, and cutmix"):
        build_augmentation([f"cutmix|{name}"], PREPROCESSING)
    with pytest.raises(SurgeonError, match="does not work on batches"):
        mixer(name, classes=6)


def test_a_mixer_without_a_generator_uses_torchs() -> None:
    mix = mixer("mixup", "cutout:size=3", classes=6)
    torch.manual_seed(0)
    first = mix(IMAGES, torch.arange(6), None)[0]
    torch.manual_seed(0)
    assert torch.equal(first, mix(IMAGES, torch.arange(6), None)[0])
    assert not torch.equal(first, mix(IMAGES, torch.arange(6), None)[0])


def pictures(count: int) -> list[Image.Image]:
    noise = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return [Image.fromarray(one) for one in noise]


def singly(spec: str, numbers: list[int], seed: int = 0) -> torch.Tensor:
    some = pictures(max(numbers) + 1)
    return augment_singly(
        build_augmentation([spec], PREPROCESSING), [some[number] for number in numbers], numbers, PREPROCESSING, seed
    )


def test_a_choice_for_each_image_takes_each_as_often_and_is_the_operation_itself() -> None:
    numbers = list(range(300))
    plain = singly("none|none", numbers)
    chain = build_augmentation(["gaussian-noise:sigma=0.5|colour-jitter:strength=0.9|none"], PREPROCESSING)
    chosen = singly("gaussian-noise:sigma=0.5|colour-jitter:strength=0.9|none", numbers)
    (choice,) = chain.image
    assert isinstance(choice, OneForEachImage)
    found = Counter[int]()
    for number, picture in enumerate(pictures(len(numbers))):
        with seeded(0, number):
            drawn = random.choice(range(3))
            for operation in choice.choices[drawn]:
                picture = operation(picture)
        found[drawn] += 1
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255
        torch.testing.assert_close(chosen[number], (pixels - 0.5) / 0.5)
        assert (drawn == 2) == bool(torch.equal(chosen[number], plain[number]))
    assert all(70 < count < 130 for count in found.values()), found


def test_a_choice_for_each_image_depends_on_its_number_and_the_seed_only() -> None:
    spec, numbers = "randaugment|augmix|none", list(range(12))
    whole = singly(spec, numbers)
    assert torch.equal(whole, torch.cat([singly(spec, [number]) for number in numbers]))
    assert torch.equal(whole.flip(0), singly(spec, numbers[::-1]))
    assert not torch.equal(whole, singly(spec, numbers, seed=1))


@pytest.mark.parametrize("choices", [2, 4])
def test_what_is_chosen_does_not_decide_on_what_is_then_drawn(choices: int) -> None:
    """RandAugment draws its operations from numpy's generator, which seeded alike has the same bits as torch's."""
    drawn: list[int] = []

    def operation(image: Image.Image) -> Image.Image:
        drawn.append(int(np.random.randint(4)))
        return image

    choice = OneForEachImage(((operation,), *[()] * (choices - 1)))
    for number in range(800):
        with seeded(0, number):
            choice(pictures(1)[0])
    counts = Counter(drawn)
    expected = 800 / choices / 4
    assert len(counts) == 4
    assert all(abs(count - expected) < 4 * expected**0.5 for count in counts.values()), counts


def test_a_choice_leaves_the_generators_of_a_caller_alone() -> None:
    before = random.getstate()
    singly("randaugment|none", [0, 1])
    assert random.getstate() == before


def test_a_policy_in_a_choice_brings_its_crop_for_all() -> None:
    chain = build_augmentation(["strong:flip=false|augmix|none"], PREPROCESSING, "standard")
    assert len(chain.image) == 1
    assert not chain.batch
    cropped = build_augmentation(["standard:flip=false"], PREPROCESSING)
    for number, picture in enumerate(pictures(5)):
        with seeded(number):
            one = chain.geometry(picture)
        with seeded(number):
            assert one.tobytes() == cropped.geometry(picture).tobytes()
    choice = chain.image[0]
    assert isinstance(choice, OneForEachImage)
    assert [len(operations) for operations in choice.choices] == [1, 1, 0]


def test_a_choice_of_crops_is_one_crop_and_none_is_that_of_evaluation() -> None:
    chain = build_augmentation(["standard:flip=false|none"], PREPROCESSING, "standard")
    assert not chain.image
    (picture,) = pictures(1)
    moved = 0
    for number in range(200):
        with seeded(number):
            moved += chain.geometry(picture).tobytes() != picture.tobytes()
    # A crop of the padded picture is the picture itself once in nine times.
    assert abs(moved - 200 / 2 * 8 / 9) < 30
    with pytest.raises(SurgeonError, match="Only one augmentation can choose the crop"):
        build_augmentation(["standard|none", "standard"], PREPROCESSING)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("randaugment|cutmix", "randaugment would be chosen for each image, and cutmix, which does not work on single"),
        ("weak|strong", "'weak.strong' cannot choose: standard and randaugment.* cutout.* for each batch"),
        ("standard:flip=false|strong", "cannot choose between crops .standard:flip=False and standard."),
        ("randaugment|augmixx", "Did you mean.*augmix"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused_in_a_sentence(spec: str, message: str) -> None:
    with pytest.raises(SurgeonError, match=message):
        build_augmentation([spec], PREPROCESSING)
