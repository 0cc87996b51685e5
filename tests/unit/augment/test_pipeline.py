"""Chains of augmentations, and the choice of one for each batch."""

from __future__ import annotations

import pytest
import torch

from surgeon.augment.base import Kind, augments
from surgeon.augment.mixing import Mix, soft
from surgeon.augment.pipeline import build_augmentation, mixer
from surgeon.core.errors import SurgeonError
from surgeon.models.sources import Preprocessing
from tests.helpers import randn

PREPROCESSING = Preprocessing(input_size=(3, 8, 8), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
IMAGES, TARGETS = randn(6, 3, 8, 8), soft(torch.arange(6), 6)
IMAGE_AUGMENTS = [name for name in augments if augments[name].kind in (Kind.IMAGE, Kind.GEOMETRY)]


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
    with pytest.raises(SurgeonError, match="does not work on batches"):
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
