"""The loss of a step in which MoEx, CutMix or both mixed the examples."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.inserts.moex.exchange import exchange_moments
from surgeon.inserts.moex.layer import Exchange
from surgeon.inserts.moex.loss import CutMix, exchanged_loss
from surgeon.surgery.apply import convert
from tests.helpers import randn, small_images, small_resnet

LOGITS = randn(5, 4)
TARGETS = torch.tensor([0, 3, 1, 2, 2])
PERMUTATION = torch.tensor([2, 0, 1, 4, 3])


def mixed_labels(weights: list[Tensor | float]) -> Tensor:
    """Cross-entropy against mixed one-hot labels: each example's own, its partner's, and that one's partner's."""
    labels, own = torch.zeros(5, 4), torch.arange(5)
    for weight in weights:
        one_hot = F.one_hot(TARGETS[own], 4).float()
        labels += one_hot * (weight[:, None] if isinstance(weight, Tensor) else weight)
        own = own[PERMUTATION]
    return F.cross_entropy(LOGITS, labels)


def test_two_terms() -> None:
    loss = exchanged_loss(F.cross_entropy, LOGITS, TARGETS, Exchange(PERMUTATION, 0.9))
    torch.testing.assert_close(loss, mixed_labels([0.9, 0.1]))


def test_a_batch_that_was_left_alone_has_a_plain_loss() -> None:
    loss = exchanged_loss(F.cross_entropy, LOGITS, TARGETS, None)
    assert torch.equal(loss, F.cross_entropy(LOGITS, TARGETS))


def test_cutmix_alone() -> None:
    loss = exchanged_loss(F.cross_entropy, LOGITS, TARGETS, None, CutMix(PERMUTATION, 0.7))
    torch.testing.assert_close(loss, mixed_labels([0.7, 0.3]))


def test_three_terms_with_cutmix() -> None:
    loss = exchanged_loss(F.cross_entropy, LOGITS, TARGETS, Exchange(PERMUTATION, 0.9), CutMix(PERMUTATION, 0.7))
    torch.testing.assert_close(loss, mixed_labels([0.63, 0.9 * 0.3 + 0.1 * 0.7, 0.03]))


def test_a_share_of_pixels_for_each_example() -> None:
    kept = torch.tensor([0.1, 0.5, 1.0, 0.0, 0.7])

    def criterion(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, reduction="none")

    loss = exchanged_loss(criterion, LOGITS, TARGETS, Exchange(PERMUTATION, 0.9), CutMix(PERMUTATION, kept))
    theirs = kept[PERMUTATION]  # the partner was cut as well, by its own share
    torch.testing.assert_close(loss, mixed_labels([0.9 * kept, 0.9 * (1 - kept) + 0.1 * theirs, 0.1 * (1 - theirs)]))
    with pytest.raises(ValueError, match='reduction="none"'):
        exchanged_loss(F.cross_entropy, LOGITS, TARGETS, None, CutMix(PERMUTATION, kept))


def test_two_permutations_are_refused() -> None:
    with pytest.raises(ValueError, match="one permutation"):
        exchanged_loss(
            F.cross_entropy, LOGITS, TARGETS, Exchange(PERMUTATION, 0.9), CutMix(torch.arange(5).flip(0), 0.5)
        )


def test_the_unit_tells_what_it_exchanged() -> None:
    model = convert(small_resnet(), "moex", p=0.5, seed=0).train()
    unit = surgeon.exchange_unit(model)
    seen: list[tuple[Tensor, Tensor]] = []
    unit.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    steps = []
    for step in range(12):
        loss = exchanged_loss(F.cross_entropy, model(small_images(5, seed=step)), TARGETS, unit.last)
        loss.backward()
        before, after = seen[-1]
        steps.append(unit.last is not None)
        if unit.last is None:
            assert after is before
        else:
            assert unit.last.lam == 0.9
            assert torch.equal(after, exchange_moments(before, unit.last.permutation, "pono"))
    assert 0 < sum(steps) < 12


def test_a_permutation_and_a_mask_count_for_one_step() -> None:
    unit = surgeon.exchange_unit(convert(small_resnet(), "moex:p=1,norm=in")).train()
    x, mask = randn(5, 6, 7), torch.arange(7) >= torch.tensor([[7], [5], [4], [6], [7]])
    unit.permutation, unit.mask = PERMUTATION, mask
    assert torch.equal(unit(x), exchange_moments(x, PERMUTATION, "in", mask=mask))
    assert unit.permutation is unit.mask is None
    unit.permutation = torch.arange(3)
    with pytest.raises(ValueError, match="permutation of 5"):
        unit(x)


def test_two_networks_do_not_share_an_exchange() -> None:
    first, second = (convert(small_resnet(), "moex:p=1").train() for _ in range(2))
    first(small_images())
    assert surgeon.exchange_unit(first).last is not None
    assert surgeon.exchange_unit(second).last is None


def test_a_network_without_a_unit_says_so() -> None:
    with pytest.raises(SurgeonError, match="no moex unit"):
        surgeon.exchange_unit(small_resnet())
