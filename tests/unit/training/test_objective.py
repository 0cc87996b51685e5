"""One cross-entropy with mixed targets is the sum of losses that the papers write."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import surgeon
from surgeon.augment.pipeline import Augmentation, build_augmentation
from surgeon.losses.base import Copy, ask
from surgeon.losses.jensen_shannon import jensen_shannon
from surgeon.models.origin import Preprocessing
from surgeon.training.copies import Copies
from surgeon.training.objective import Draws, Given, Objective
from tests.helpers import SmallResNet, randn

NOTHING = Augmentation(geometry=lambda image: image)
IMAGES, LABELS = randn(6, 3, 8, 8), torch.tensor([0, 1, 2, 3, 0, 1])

NOISE = randn(6, 3, 8, 8, seed=9)


PLAIN = Copies({Copy.WEAK: NOTHING})
BRANCHES = Copies(
    {Copy.WEAK: NOTHING, Copy.STRONG: NOTHING},
    seen=(Copy.WEAK, Copy.STRONG),
    labelled=(Copy.WEAK, Copy.STRONG),
    branches=True,
)
THREE = (Copy.CLEAN, Copy.WEAK, Copy.SECOND)


def loss_of(model: nn.Module, *terms: str, copies: Copies = PLAIN) -> torch.Tensor:
    torch.manual_seed(0)
    images = tuple(IMAGES + number * NOISE for number in range(len(copies.augmentations)))
    given = Given(images, LABELS, torch.arange(6))
    return Objective(model, ask(terms), copies, 4)(model, given, Draws(torch.Generator().manual_seed(0))).loss


def test_without_anything_it_is_cross_entropy() -> None:
    model = SmallResNet().eval()
    torch.testing.assert_close(loss_of(model), F.cross_entropy(model(IMAGES), LABELS))


def test_smoothing_spreads_over_the_wrong_classes() -> None:
    model = SmallResNet().eval()
    log_p = model(IMAGES).log_softmax(1)
    own = log_p[torch.arange(6), LABELS]
    expected = -(0.8 * own + 0.2 / 3 * (log_p.sum(1) - own)).mean()
    torch.testing.assert_close(loss_of(model, "cross-entropy:smoothing=0.2"), expected)


def test_moex_is_its_two_terms() -> None:
    model = surgeon.convert(SmallResNet(), "moex:site=bn1,p=1", inputs=(IMAGES,)).train()
    loss = loss_of(model)
    unit = surgeon.exchange_unit(model)
    assert unit.last is not None
    torch.manual_seed(0)
    logits = model(IMAGES)
    expected = surgeon.exchanged_loss(F.cross_entropy, logits, LABELS, unit.last)
    torch.testing.assert_close(loss, expected)
    assert not torch.isclose(loss, F.cross_entropy(logits, LABELS))


def test_moex_with_cutmix_is_its_three_terms() -> None:
    preprocessing = Preprocessing(input_size=(3, 8, 8), mean=(0.5,) * 3, std=(0.5,) * 3)
    augmentation = build_augmentation(["cutmix"], preprocessing)
    model = surgeon.convert(SmallResNet(), "moex:site=bn1,p=1", inputs=(IMAGES,)).train()
    torch.manual_seed(0)
    objective = Objective(model, ask(()), Copies({Copy.WEAK: augmentation}), 4)
    draws = Draws(torch.Generator().manual_seed(3))
    loss = objective(model, Given((IMAGES,), LABELS, torch.arange(6)), draws).loss
    unit = surgeon.exchange_unit(model)
    assert unit.last is not None
    (operation,) = augmentation.mixing
    mixed = operation.mixed(IMAGES, torch.Generator().manual_seed(3))  # type: ignore[attr-defined]
    assert torch.equal(unit.last.permutation, mixed.permutation)
    unit.permutation = mixed.permutation
    cutmix = surgeon.CutMix(mixed.permutation, mixed.kept)
    each = nn.CrossEntropyLoss(reduction="none")
    expected = surgeon.exchanged_loss(each, model(mixed.images), LABELS, unit.last, cutmix)
    torch.testing.assert_close(loss, expected)


def test_two_copies_are_the_mean_of_both_branches() -> None:
    model = surgeon.convert(SmallResNet(), "split").train()
    loss = loss_of(model, copies=BRANCHES)
    losses = []
    for name, images in (("main", IMAGES), ("aux", IMAGES + NOISE)):
        with surgeon.branch(model, name):
            losses.append(F.cross_entropy(model(images), LABELS))
    torch.testing.assert_close(loss, sum(losses) / 2, rtol=1e-4, atol=1e-5)
    assert losses[0] != losses[1]


def test_three_copies_are_to_agree() -> None:
    model = SmallResNet().eval()
    logits = [model(IMAGES + number * NOISE) for number in range(3)]
    expected = F.cross_entropy(logits[0], LABELS) + 12 * jensen_shannon(logits)
    copies = Copies(dict.fromkeys(THREE, NOTHING), seen=THREE, labelled=(Copy.CLEAN,))
    torch.testing.assert_close(loss_of(model, "jensen-shannon", copies=copies), expected, rtol=1e-4, atol=1e-5)


def test_mixing_can_be_left_out() -> None:
    def swap(images: torch.Tensor, targets: torch.Tensor, _: object) -> tuple[torch.Tensor, torch.Tensor]:
        return images, targets.roll(1, 0)

    model = SmallResNet().eval()
    copies = Copies({Copy.WEAK: Augmentation(geometry=lambda image: image, mixing=(swap,))})
    objective = Objective(model, ask(()), copies, 4)
    given = Given((IMAGES,), LABELS, torch.arange(6))
    draws = (Draws(torch.Generator(), mixing=mixing) for mixing in (True, False))
    losses = [objective(model, given, draw).loss.item() for draw in draws]
    expected = F.cross_entropy(model(IMAGES), LABELS.roll(1)), F.cross_entropy(model(IMAGES), LABELS)
    assert losses[0] == pytest.approx(expected[0].item(), rel=1e-5)
    assert losses[1] == pytest.approx(expected[1].item(), rel=1e-5)


def test_auxiliary_classifiers_take_no_part() -> None:
    """GoogLeNet and Inception answer with several logits while they are trained."""

    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main = SmallResNet().eval()

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logits = self.main(images)
            return logits, logits + 1

    model = Several()
    torch.testing.assert_close(loss_of(model), F.cross_entropy(model(IMAGES)[0], LABELS))
