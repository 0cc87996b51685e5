"""Conditions in the measuring engine: pixels are restored exactly, changed once for all networks, normalised again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from surgeon.conditions.base import Asked, Condition, ConditionConfig, Family, Seen, ask
from surgeon.core.errors import SurgeonError
from surgeon.data.loaders import Batch
from surgeon.data.transforms import normalise
from surgeon.measuring.conditions import ConditionMaker, denormalise, renormalise
from surgeon.measuring.engine import score_batches
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.keeping import only_scores
from surgeon.measuring.variants import Variant
from surgeon.models.origin import Preprocessing

IMAGENET = Preprocessing(input_size=(3, 16, 16), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def some_bytes() -> Tensor:
    images = torch.arange(256, dtype=torch.uint8).repeat(6).reshape(2, 3, 16, 16)
    return images.contiguous(memory_format=torch.channels_last)


def batch() -> Batch:
    return Batch(normalise(some_bytes(), IMAGENET), torch.tensor([0, 1]), torch.tensor([5, 9]))


class Network(nn.Module):
    """Remembers what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(images.detach().clone())
        return images.mean((2, 3))


def test_pixels_are_the_decoded_bytes_and_back() -> None:
    normalised = normalise(some_bytes(), IMAGENET)
    pixels = denormalise(normalised, IMAGENET)
    assert torch.equal(pixels, some_bytes().float() / 255)
    assert torch.equal(renormalise(pixels, IMAGENET), normalised)


def test_a_batch_under_a_condition() -> None:
    (asked,) = ask(["contrast:severity=2"])
    given = batch()
    before = given.images.clone()
    condition = ConditionMaker().make(asked, IMAGENET)
    assert condition is not None
    found = condition(given)
    expected = asked.apply(some_bytes().float() / 255, given.labels, given.indices)
    assert torch.equal(found.images, renormalise(expected, IMAGENET))
    assert torch.equal(given.images, before)
    assert found.images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found.indices, given.indices)


def test_is_applied_once_for_all_networks() -> None:
    calls: list[int] = []

    def apply(config: ConditionConfig, seen: Seen) -> Tensor:  # noqa: ARG001
        calls.append(len(seen.pixels))
        return 1 - seen.pixels

    asked = Asked(Condition("negative", "…", "", ConditionConfig, Family.EXTRA, apply), ConditionConfig())
    maker, networks = ConditionMaker(), (Network(), Network())
    variants = {
        str(number): Variant(network, InferenceSettings.of(network), condition=maker.make(asked, IMAGENET, network))
        for number, network in enumerate(networks)
    }
    score_batches(variants, [batch()], only_scores)
    assert calls == [2]
    assert torch.equal(networks[0].seen[0], networks[1].seen[0])


def test_other_preprocessing_is_another_condition_and_clean_is_none() -> None:
    maker = ConditionMaker()
    clean, fog = ask(["clean", "fog:severity=1"])
    assert maker.make(clean, IMAGENET) is None
    assert maker.make(fog, IMAGENET) is maker.make(fog, IMAGENET)
    assert maker.make(fog, IMAGENET) is not maker.make(fog, IMAGENET.model_copy(update={"crop_pct": 0.9}))


def test_a_condition_that_needs_a_network_gets_its_own_with_gradients() -> None:
    def apply(config: ConditionConfig, seen: Seen) -> Tensor:  # noqa: ARG001
        assert seen.network is not None
        pixels = seen.pixels.clone().requires_grad_()
        seen.network(pixels).sum().backward()
        assert pixels.grad is not None
        return (seen.pixels + pixels.grad.sign() / 10).clamp(0, 1).detach()

    asked = Asked(Condition("push", "…", "", ConditionConfig, Family.ATTACK, apply, True), ConditionConfig())
    maker, network = ConditionMaker(), Network()
    condition = maker.make(asked, IMAGENET, network)
    assert condition is not None
    assert condition is not maker.make(asked, IMAGENET, Network())
    assert torch.allclose(condition(batch()).images, renormalise((some_bytes() / 255 + 0.1).clamp(0, 1), IMAGENET))
    with pytest.raises(SurgeonError, match="made for a network"):
        maker.make(asked, IMAGENET)


def test_another_shape_is_refused() -> None:
    condition = Condition("cut", "…", "", ConditionConfig, Family.EXTRA, lambda _, seen: seen.pixels[..., 1:])
    made = ConditionMaker().make(Asked(condition, ConditionConfig()), IMAGENET)
    assert made is not None
    with pytest.raises(SurgeonError, match="made images of"):
        made(replace(batch()))
