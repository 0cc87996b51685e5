"""Steps of adversarial training against steps written by hand: losses, gradients, statistics, and passes counted."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import surgeon
from surgeon.augment.pipeline import Augmentation, build_augmentation
from surgeon.conditions.attack import generators_of, one_attack
from surgeon.conditions.base import Seen
from surgeon.core.private import BatchNorm
from surgeon.layers.surgical import surgical_layers
from surgeon.losses.base import Copy, ask
from surgeon.training.attack import TrainingAttack
from surgeon.training.copies import Copies, plan_copies
from surgeon.training.objective import Draws, Given, Objective
from surgeon.training.recipe import check_recipe
from tests.helpers import randn, small_resnet
from tests.unit.test_attacks import PLAIN

NOTHING = Augmentation(geometry=lambda image: image)
EPS, STEP, STEPS, SEED = 0.05, 0.02, 3, 6
ATTACK = f"pgd:eps={EPS},step={STEP},steps={STEPS}"
LABELS, INDICES = torch.tensor([0, 1, 2, 3, 0, 1]), torch.tensor([5, 3, 8, 1, 9, 2])
IMAGES = randn(6, 3, 8, 8, dtype=torch.float64)
MEAN, STD = (torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in (PLAIN.mean, PLAIN.std))


def planned(model: nn.Module, branches: bool = False, **keys: object) -> Copies:
    """The copies that a recipe plans, but of images that are not augmented."""
    copies = plan_copies(check_recipe(keys, "x"), model, PLAIN, branches)
    return Copies(
        dict.fromkeys(copies.augmentations, NOTHING), copies.seen, copies.labelled, copies.attack, copies.branches
    )


def loss_of(model: nn.Module, branches: bool = False, **keys: object) -> Tensor:
    copies = planned(model, branches, **keys)
    given = Given(tuple(IMAGES for _ in copies.augmentations), LABELS, INDICES)
    objective = Objective(model, ask(check_recipe(keys, "x").loss), copies, 4)
    return objective(model, given, Draws(torch.Generator(), SEED)).loss


def by_hand(model: nn.Module, labels: Tensor | None = LABELS) -> Tensor:
    """PGD on the network in evaluation mode; without labels, on KL(p(x), p(x')) as TRADES has it."""
    model = copy.deepcopy(model).eval()
    pixels = IMAGES * STD + MEAN
    low = torch.minimum((pixels - EPS).clamp_min(0), pixels)
    high = torch.maximum((pixels + EPS).clamp_max(1), pixels)
    seen = Seen(pixels, LABELS, INDICES, SEED, "pgd")
    start = torch.stack([torch.rand(3, 8, 8, generator=g, dtype=torch.float64) for g in generators_of(seen, "pgd")])
    reached = torch.clamp(pixels + EPS * (2 * start - 1), low, high)
    wanted = model(IMAGES).detach().softmax(1) if labels is None else labels
    for _ in range(STEPS):
        leaf = reached.clone().requires_grad_()
        loss = F.cross_entropy(model((leaf - MEAN) / STD), wanted, reduction="sum")
        (slope,) = torch.autograd.grad(loss, leaf)
        reached = torch.clamp(reached + STEP * slope.sign(), low, high)
    return (reached - MEAN) / STD


def networks() -> tuple[nn.Module, nn.Module]:
    """The same network twice, in training mode."""
    model = small_resnet().double().train()
    return model, copy.deepcopy(model)


def assert_same_step(model: nn.Module, loss: Tensor, other: nn.Module, expected: Tensor) -> None:
    """The same loss, the same gradients, and the same statistics."""
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    loss.backward()
    expected.backward()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-7)
    for (name, mine), theirs in zip(model.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8, msg=name)
    assert all(m.training for m in model.modules())


def test_on_adversarial_images_alone() -> None:
    model, other = networks()
    adversarial = by_hand(other)
    loss = loss_of(model, attack=ATTACK)
    assert_same_step(model, loss, other, F.cross_entropy(other(adversarial), LABELS))
    counted = [module.num_batches_tracked for module in model.modules() if isinstance(module, BatchNorm)]
    assert all(int(number) == 1 for number in counted if number is not None), "one batch, however many steps"


def test_half_and_half() -> None:
    model, other = networks()
    both = torch.cat([IMAGES, by_hand(other)])
    loss = loss_of(model, attack=ATTACK, loss="cross-entropy:on=weak+adversarial")
    assert_same_step(model, loss, other, F.cross_entropy(other(both), LABELS.repeat(2)))


def test_trades() -> None:
    """Labels count on images as they are; the attack moves predictions."""
    model, other = networks()
    loss = loss_of(model, attack=ATTACK, loss="trades:beta=6")
    weak, adversarial = other(torch.cat([IMAGES, by_hand(other, labels=None)])).chunk(2)
    divergence = (weak.softmax(1) * (weak.log_softmax(1) - adversarial.log_softmax(1))).sum(1).mean()
    assert_same_step(model, loss, other, F.cross_entropy(weak, LABELS) + 6 * divergence)


def test_lrm() -> None:
    model, other = networks()
    loss = loss_of(model, attack=ATTACK, loss="lrm:beta=0.01,ratio=0.5,smoothing=0.1")
    weak, adversarial = other(torch.cat([IMAGES, by_hand(other)])).chunk(2)
    targets = torch.full((6, 4), 0.1 / 3, dtype=torch.float64)
    targets[torch.arange(6), LABELS] = 0.9
    labels = -(targets * adversarial.log_softmax(1)).sum(1).mean()
    distance = -(weak.softmax(1) * adversarial.log_softmax(1)).sum(1).mean()
    pairing = 0.5 * float(labels.detach() / distance.detach()) * distance
    lengths = 0.01 * (weak.square().sum(1).mean() + adversarial.square().sum(1).mean())
    assert_same_step(model, loss, other, labels + pairing + lengths)


def test_advprop_keeps_the_branches_apart() -> None:
    """Two ordinary networks with the same convolutions: one sees images as they are, one its adversarial ones."""
    plain, _ = networks()
    main, aux = copy.deepcopy(plain), copy.deepcopy(plain)
    model = surgeon.convert(plain, "split").train()
    adversarial = by_hand(aux)
    loss = loss_of(model, branches=True, strong=ATTACK)
    expected = (F.cross_entropy(main(IMAGES), LABELS) + F.cross_entropy(aux(adversarial), LABELS)) / 2
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    loss.backward()
    expected.backward()
    for name, layer in surgical_layers(model).items():
        assert layer.aux is not None
        for branch, theirs in ((layer, main.get_submodule(name)), (layer.aux, aux.get_submodule(name))):
            for statistic in ("running_mean", "running_var", "num_batches_tracked"):
                torch.testing.assert_close(getattr(branch, statistic), getattr(theirs, statistic))
            torch.testing.assert_close(branch.weight.grad, theirs.weight.grad, rtol=1e-4, atol=1e-7)
    for name in ("conv1", "layer2.0.conv1", "fc"):
        mine, first, second = (net.get_submodule(name).weight.grad for net in (model, main, aux))
        torch.testing.assert_close(mine, first + second, rtol=1e-4, atol=1e-7)


@dataclass
class Shifting:
    """In the place of an attack: notes what it was given."""

    targets: list[Tensor] = field(default_factory=list)

    def __call__(self, images: Tensor, targets: Tensor, indices: Tensor, seed: int) -> Tensor:  # noqa: ARG002
        self.targets.append(targets)
        return images + 0.1


@pytest.mark.parametrize("spec", ["cross-entropy:on=weak+adversarial", "cross-entropy:on=adversarial"])
def test_moex_mixes_adversarial_images_with_partners_of_their_kind(spec: str) -> None:
    """Whom CutMix has chosen, in every copy; the attack knows CutMix' labels, the loss has the three of both."""
    model = surgeon.convert(small_resnet(), "moex:site=bn1,p=1", inputs=(IMAGES.float(),)).double().train()
    augmentation, attack = build_augmentation(["cutmix"], PLAIN), Shifting()
    copies = planned(model, attack="fgsm", loss=spec)
    copies = Copies({Copy.WEAK: augmentation}, copies.seen, copies.labelled, attack)  # type: ignore[arg-type]
    objective = Objective(model, ask([spec]), copies, 4)
    loss = objective(model, Given((IMAGES,), LABELS, INDICES), Draws(torch.Generator().manual_seed(3))).loss
    unit, (operation,) = surgeon.exchange_unit(model), augmentation.mixing
    assert unit.last is not None
    mixed = operation.mixed(IMAGES, torch.Generator().manual_seed(3))  # type: ignore[attr-defined]
    shares = mixed.kept[:, None] * F.one_hot(LABELS, 4) + (1 - mixed.kept[:, None]) * F.one_hot(
        LABELS[mixed.permutation], 4
    )
    torch.testing.assert_close(attack.targets[0], shares.float())
    seen = [mixed.images, mixed.images + 0.1] if len(copies.seen) == 2 else [mixed.images + 0.1]
    apart = torch.cat([mixed.permutation + 6 * number for number in range(len(seen))])
    assert torch.equal(unit.last.permutation, apart)
    unit.permutation = apart
    each = nn.CrossEntropyLoss(reduction="none")
    cutmix = surgeon.CutMix(apart, mixed.kept.repeat(len(seen)))
    expected = surgeon.exchanged_loss(each, model(torch.cat(seen)), LABELS.repeat(len(seen)), unit.last, cutmix)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("keys", "branches", "passes"),
    [
        ({"attack": ATTACK}, False, STEPS + 1),
        ({"attack": "fgsm"}, False, 2),
        ({"attack": ATTACK, "loss": "lrm"}, False, STEPS + 1),
        ({"attack": ATTACK, "loss": "trades"}, False, STEPS + 2),  # it also has to know what it moves away from
        ({"strong": ATTACK}, True, STEPS + 1),
    ],
)
def test_there_are_no_needless_passes(keys: dict[str, object], branches: bool, passes: int) -> None:
    model = networks()[0]
    model = surgeon.convert(model, "split").train() if branches else model
    modes: list[bool] = []
    backward: list[bool] = []
    model.register_forward_hook(lambda net, _, __: modes.append(net.training))
    model.fc.register_full_backward_hook(lambda *_: backward.append(True))
    loss_of(model, branches, **keys).backward()
    assert modes == [False] * (passes - 1) + [True]
    assert len(backward) == passes - ("trades" in str(keys))
    attacked = TrainingAttack(one_attack(ATTACK), model, PLAIN)
    assert attacked(IMAGES, F.one_hot(LABELS, 4).float(), INDICES, 0).stride() == IMAGES.stride()
    last = IMAGES.contiguous(memory_format=torch.channels_last)
    assert attacked(last, F.one_hot(LABELS, 4).float(), INDICES, 0).stride() == last.stride(), "no change of format"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_logits_give_a_loss_in_single(dtype: torch.dtype) -> None:
    class Narrow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = small_resnet()

        def forward(self, x: Tensor) -> Tensor:
            return self.network(x).to(dtype)

    model = Narrow().eval()
    objective = Objective(model, ask(["logit-squeezing:beta=1"]), Copies({Copy.WEAK: NOTHING}), 4)
    loss = objective(model, Given((IMAGES.float(),), LABELS, INDICES), Draws(torch.Generator())).loss
    logits = model(IMAGES.float()).double()
    expected = F.cross_entropy(logits, LABELS) + logits.square().sum(1).mean()
    assert loss.dtype is torch.float32
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
