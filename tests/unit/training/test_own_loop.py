"""Losses and attacks for a training loop of one's own, against formulas in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.surgery.branches import branch
from tests.helpers import randn

CLASSES = 5
LABELS = torch.tensor([0, 3, 4, 1, 1, 2])
COPIES = ("clean", "weak", "second", "strong", "adversarial")
LOGITS = {name: 3 * randn(len(LABELS), CLASSES, seed=seed, dtype=torch.float64) for seed, name in enumerate(COPIES)}
SHARES = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(CLASSES), len(LABELS)))
Array = NDArray[np.float64]


def logs(name: str) -> Array:
    logits = LOGITS[name].numpy()
    shifted = logits - logits.max(1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return found


def entropy_with(name: str, shares: Array) -> float:
    return float(-(shares * logs(name)).sum(1).mean())


ONE_HOT = np.eye(CLASSES)[LABELS.numpy()]


def squeezed(*names: str) -> float:
    return sum(float((LOGITS[name].numpy() ** 2).sum(1).mean()) for name in names)


def smoothed(share: float) -> Array:
    return ONE_HOT * (1 - share) + (1 - ONE_HOT) * share / (CLASSES - 1)


def divergence() -> float:
    weak, adversarial = logs("weak"), logs("adversarial")
    return float((np.exp(weak) * (weak - adversarial)).sum(1).mean())


def jensen_shannon() -> float:
    each = [np.exp(logs(name)) for name in ("clean", "weak", "second")]
    middle = np.mean(each, axis=0)
    return float(np.mean([(one * np.log(one / middle)).sum(1).mean() for one in each]))


@pytest.mark.parametrize(
    ("specs", "copies", "expected"),
    [
        ((), ("weak",), lambda: entropy_with("weak", ONE_HOT)),
        (("cross-entropy:smoothing=0.3",), ("weak",), lambda: entropy_with("weak", smoothed(0.3))),
        (
            ("cross-entropy:smoothing=0.3,spread=all",),
            ("weak",),
            lambda: entropy_with("weak", ONE_HOT * 0.7 + 0.3 / CLASSES),
        ),
        (
            ("logit-squeezing:beta=0.01",),
            ("weak",),
            lambda: entropy_with("weak", ONE_HOT) + 0.01 * squeezed("weak"),
        ),
        (
            ("confidence-penalty:beta=0.2",),
            ("weak",),
            lambda: entropy_with("weak", ONE_HOT) + 0.2 * float((np.exp(logs("weak")) * logs("weak")).sum(1).mean()),
        ),
        (
            ("cross-entropy:on=weak+adversarial", "alp:weight=0.5"),
            ("weak", "adversarial"),
            lambda: (
                (entropy_with("weak", ONE_HOT) + entropy_with("adversarial", ONE_HOT)) / 2
                + 0.5 * float(((LOGITS["weak"] - LOGITS["adversarial"]).numpy() ** 2).sum(1).mean())
            ),
        ),
        (
            ("trades:beta=6",),
            ("weak", "adversarial"),
            lambda: entropy_with("weak", ONE_HOT) + 6 * divergence(),
        ),
        (
            ("lrm:beta=0.001,ratio=0.125,smoothing=0.1",),
            ("weak", "adversarial"),
            lambda: 1.125 * entropy_with("adversarial", smoothed(0.1)) + 0.001 * squeezed("weak", "adversarial"),
        ),
        (
            ("jensen-shannon:weight=12",),
            ("clean", "weak", "second"),
            lambda: entropy_with("clean", ONE_HOT) + 12 * jensen_shannon(),
        ),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else None,
)
def test_a_loss_is_its_formula(specs: tuple[str, ...], copies: tuple[str, ...], expected: Callable[[], float]) -> None:
    criterion = surgeon.loss(*specs)
    assert criterion.copies == copies
    given = {name: LOGITS[name] for name in copies}
    # jensen-shannon is computed in float32
    assert float(criterion(given, LABELS)) == pytest.approx(expected(), rel=1e-6 if "clean" in copies else 1e-12)
    if len(copies) == 1:
        assert torch.equal(criterion(LOGITS[copies[0]], LABELS), criterion(given, LABELS))


def test_gradients_reach_every_copy() -> None:
    leaves = {name: LOGITS[name].clone().requires_grad_() for name in ("weak", "adversarial")}
    surgeon.loss("trades:beta=2")(leaves, LABELS).backward()
    weak, adversarial = (np.exp(logs(name)) for name in ("weak", "adversarial"))
    # d KL(p || q) / d logits of q = q - p
    torch.testing.assert_close(leaves["adversarial"].grad, torch.from_numpy(2 * (adversarial - weak) / len(LABELS)))
    assert leaves["weak"].grad is not None


def test_shares_and_targets_by_copy() -> None:
    criterion = surgeon.loss()
    assert float(criterion(LOGITS["weak"], SHARES)) == pytest.approx(entropy_with("weak", SHARES.numpy()), rel=1e-12)
    given = {name: LOGITS[name] for name in ("weak", "strong")}
    found = float(criterion(given, {"weak": LABELS, "strong": SHARES}))
    expected = (entropy_with("weak", ONE_HOT) + entropy_with("strong", SHARES.numpy())) / 2
    assert found == pytest.approx(expected, rel=1e-7)


def test_half_precision_is_widened() -> None:
    logits = LOGITS["weak"].half()
    assert surgeon.loss()(logits, LABELS).dtype is torch.float32


def test_adversarial_copies_alone_or_named() -> None:
    alone = surgeon.loss("cross-entropy:on=adversarial")
    assert alone.copies == ("adversarial",)
    assert float(alone(LOGITS["adversarial"], LABELS)) == pytest.approx(entropy_with("adversarial", ONE_HOT))
    both = {name: LOGITS[name] for name in ("weak", "adversarial")}
    # As with --attack: the labels of adversarial copies count.
    assert float(surgeon.loss()(both, LABELS)) == pytest.approx(entropy_with("adversarial", ONE_HOT))


@pytest.mark.parametrize(
    ("specs", "logits", "targets", "says"),
    [
        (["alp"], LOGITS["weak"], LABELS, "alp needs predictions for weak and adversarial copies.*'weak': …"),
        (["alp"], {"weak": LOGITS["weak"]}, LABELS, "there are none for adversarial"),
        (["alp"], {"waek": LOGITS["weak"]}, LABELS, "no copy 'waek'. Did you mean weak"),
        ([], LOGITS["weak"][0], LABELS, r"not torch.float64 of \(5,\)"),
        ([], LOGITS["weak"], LABELS[:2], "6 predictions for weak copies, but 2 targets"),
        ([], LOGITS["weak"], SHARES[:, :3], r"are \(N, 5\), not \(6, 3\)"),
        ([], {"weak": LOGITS["weak"]}, {"strong": LABELS}, "no targets for weak copies"),
        ([], {}, LABELS, "there are none for weak"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(
    specs: list[str], logits: Tensor | dict[str, Tensor], targets: Tensor | dict[str, Tensor], says: str
) -> None:
    with pytest.raises(SurgeonError, match=says):
        surgeon.loss(*specs)(logits, targets)


def test_terms_that_disagree_are_refused() -> None:
    with pytest.raises(SurgeonError, match="trades and jensen-shannon disagree"):
        surgeon.loss("trades", "jensen-shannon")
    named = surgeon.loss("trades", "jensen-shannon", "cross-entropy:on=weak")
    assert named.copies == ("clean", "weak", "second", "adversarial")


def linear(weight: Tensor) -> nn.Module:
    network = nn.Sequential(nn.Flatten(), nn.Linear(weight.shape[1], weight.shape[0]))
    with torch.no_grad():
        network[1].weight.copy_(weight)
    return network


MEAN, STD = (0.4, 0.6), (0.2, 0.5)


def pixels(normalised: Tensor) -> Tensor:
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (MEAN, STD))
    return normalised * std + mean


def test_an_attack_on_a_linear_network_reaches_its_optimum() -> None:
    """Of two classes the gradient is the same everywhere: every pixel moves by eps against it."""
    weight = randn(2, 18, seed=3)
    images = (torch.full((4, 2, 3, 3), 0.5) - torch.tensor(MEAN).view(1, -1, 1, 1)) / torch.tensor(STD).view(
        1, -1, 1, 1
    )
    labels = torch.tensor([0, 1, 1, 0])
    found = surgeon.attack(linear(weight), images, labels, "pgd:eps=0.1,step=0.05,steps=6", mean=MEAN, std=STD)
    away = (weight[1] - weight[0]).sign().view(1, 2, 3, 3) * torch.where(labels == 0, 1, -1).view(-1, 1, 1, 1)
    torch.testing.assert_close(pixels(found), 0.5 + 0.1 * away)


def test_shares_of_one_class_are_a_label_and_none_leads_from_the_prediction() -> None:
    network = linear(randn(4, 18, seed=3))
    images = torch.rand(5, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0])
    by_label = surgeon.attack(network, images, labels, "pgd:steps=3", seed=1)
    assert torch.equal(by_label, surgeon.attack(network, images, torch.eye(4)[labels], "pgd:steps=3", seed=1))
    predicted = network(images).detach().softmax(1)
    told = surgeon.attack(network, images, predicted, "pgd:steps=3", seed=1)
    assert torch.equal(surgeon.attack(network, images, None, "pgd:steps=3", seed=1), told)


def test_a_seed_repeats_an_attack_and_torchs_generator_draws_one() -> None:
    network, images = linear(randn(3, 18)), torch.rand(3, 2, 3, 3)
    once = "pgd:steps=1,step=0.001"
    first, again = (surgeon.attack(network, images, torch.zeros(3).long(), once, seed=4) for _ in range(2))
    assert torch.equal(first, again)
    drawn = [surgeon.attack(network, images, torch.zeros(3).long(), once) for _ in range(2)]
    assert not torch.equal(*drawn)


def test_a_split_network_is_attacked_through_the_branch_that_it_takes_and_left_as_it_was() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3))
    network = surgeon.convert(plain, "split").train()
    with torch.no_grad():
        network[1].aux.weight.mul_(-2)  # so that the branches differ
    images, labels = torch.rand(6, 2, 3, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    main = surgeon.attack(network, images, labels, "pgd:steps=4", seed=0)
    with branch(network, "aux"):
        auxiliary = surgeon.attack(network, images, labels, "pgd:steps=4", seed=0)
    assert not torch.equal(main, auxiliary)
    assert network.training
    assert all(module.training for module in network.modules())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((torch.zeros(3, 3), torch.zeros(3).long()), "needs images"),
        ((torch.rand(3, 2, 3, 3), torch.zeros(2).long()), "3 images need class numbers"),
        ((torch.rand(3, 2, 3, 3), torch.zeros(3).long(), "noise"), "not one attack"),
        ((torch.rand(3, 2, 3, 3), torch.zeros(3).long(), "pgd:source=x"), "attacks another network"),
    ],
)
def test_an_attack_that_cannot_be_made_is_refused(arguments: tuple[Tensor, Tensor], says: str) -> None:
    with pytest.raises(SurgeonError, match=says):
        surgeon.attack(linear(randn(3, 18)), *arguments)


def test_one_number_for_each_channel() -> None:
    with pytest.raises(SurgeonError, match="2 channels, but mean has 3 numbers and std 2"):
        surgeon.attack(linear(randn(3, 18)), torch.rand(3, 2, 3, 3), torch.zeros(3).long(), mean=(0, 0, 0), std=STD)
