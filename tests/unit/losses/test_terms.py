"""The value and the gradient of every term, against formulas in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import surgeon
from surgeon.inserts.moex.layer import Exchange
from surgeon.losses.base import Copy, Predicted, Predictions, ask, losses
from surgeon.training.objective import total
from tests.helpers import randn
from tests.reference import losses as reference

WEAK, ADVERSARIAL, CLEAN, SECOND, STRONG = Copy.WEAK, Copy.ADVERSARIAL, Copy.CLEAN, Copy.SECOND, Copy.STRONG
IMAGES, CLASSES = 5, 4
LABELS = torch.tensor([0, 3, 1, 2, 2])
HARD = F.one_hot(LABELS, CLASSES).double()
SOFT = randn(IMAGES, CLASSES, seed=7, dtype=torch.float64).softmax(1)
MIXED = 0.7 * HARD + 0.3 * HARD.roll(1, 0)
TARGETS = {"hard": HARD, "soft": SOFT, "mixed": MIXED}


def logits_of(*copies: Copy, images: int = IMAGES, classes: int = CLASSES) -> dict[Copy, Tensor]:
    """Of every copy other ones."""
    drawn = (2 * randn(images, classes, seed=number + 1, dtype=torch.float64) for number in range(len(copies)))
    return dict(zip(copies, drawn, strict=True))


def predictions_of(
    logits: Mapping[Copy, Tensor], targets: Tensor = HARD, labelled: tuple[Copy, ...] | None = None
) -> Predictions:
    made = {copy: Predicted(found, targets.to(found.dtype)) for copy, found in logits.items()}
    return Predictions(made, labelled or (next(reversed(made)),))


def value(*specs: str, **given: object) -> float:
    return float(total(ask(specs), predictions_of(**given)))  # type: ignore[arg-type]


def arrays(logits: Mapping[Copy, Tensor]) -> list[np.ndarray]:
    return [found.numpy() for found in logits.values()]


def check_gradient(specs: tuple[str, ...], logits: Mapping[Copy, Tensor], targets: Tensor = MIXED) -> None:
    """Against differences of the value itself."""

    def loss(*each: Tensor) -> Tensor:
        return total(ask(specs), predictions_of(dict(zip(logits, each, strict=True)), targets))

    torch.autograd.gradcheck(loss, tuple(found.clone().requires_grad_() for found in logits.values()))


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_cross_entropy(targets: Tensor) -> None:
    logits = logits_of(WEAK)
    expected = reference.cross_entropy(*arrays(logits), targets.numpy())
    assert value(logits=logits, targets=targets) == pytest.approx(expected, rel=1e-12)
    check_gradient(("cross-entropy",), logits, targets)


@pytest.mark.parametrize("spread", ["wrong", "all"])
@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_smoothing_in_both_conventions(spread: str, targets: Tensor) -> None:
    logits, spec = logits_of(WEAK), f"cross-entropy:smoothing=0.2,spread={spread}"
    expected = reference.cross_entropy(*arrays(logits), reference.smoothed(targets.numpy(), 0.2, spread))
    assert value(spec, logits=logits, targets=targets) == pytest.approx(expected, rel=1e-12)
    check_gradient((spec,), logits, targets)


@pytest.mark.parametrize("targets", [LABELS, SOFT], ids=["hard", "soft"])
def test_smoothing_over_all_classes_is_that_of_torch(targets: Tensor) -> None:
    logits, soft = logits_of(WEAK), HARD if targets.dim() == 1 else targets
    expected = F.cross_entropy(logits[WEAK], targets, label_smoothing=0.3)
    found = value("cross-entropy:smoothing=0.3,spread=all", logits=logits, targets=soft)
    assert found == pytest.approx(float(expected), rel=1e-12)


def test_copies_are_averaged_by_cross_entropy() -> None:
    logits = logits_of(WEAK, ADVERSARIAL)
    each = [reference.cross_entropy(found, HARD.numpy()) for found in arrays(logits)]
    assert value(logits=logits) == pytest.approx(each[1], rel=1e-12), "labels count on the last"
    both = value("cross-entropy:on=weak+adversarial", logits=logits)
    assert both == pytest.approx(sum(each) / 2, rel=1e-12)
    assert value("cross-entropy:on=weak+weak", logits=logits) == pytest.approx(each[0], rel=1e-12)


def extra(spec: str, logits: Mapping[Copy, Tensor], targets: Tensor = HARD) -> float:
    """What a term adds to cross-entropy."""
    return value(spec, logits=logits, targets=targets) - value(logits=logits, targets=targets)


def test_logit_squeezing_is_summed_over_copies() -> None:
    logits = logits_of(WEAK, ADVERSARIAL, STRONG)
    each = [reference.squared_length(found) for found in arrays(logits)]
    assert extra("logit-squeezing:beta=0.01", logits) == pytest.approx(0.01 * sum(each), rel=1e-10)
    assert extra("logit-squeezing:beta=0.01,on=weak", logits) == pytest.approx(0.01 * each[0], rel=1e-10)
    check_gradient(("logit-squeezing:beta=0.01",), logits)


def test_alp_is_a_squared_distance() -> None:
    logits = logits_of(WEAK, ADVERSARIAL)
    weak, adversarial = arrays(logits)
    expected = 5 * reference.squared_length(weak - adversarial)
    assert extra("alp:weight=5", logits) == pytest.approx(expected, rel=1e-12)
    check_gradient(("alp",), logits)


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_decoupled_pairing_is_a_share_of_the_label_loss(targets: Tensor) -> None:
    logits = logits_of(WEAK, ADVERSARIAL)
    labels = "cross-entropy:smoothing=0.1"
    with_labels = value(labels, logits=logits, targets=targets)
    both = value(labels, "decoupled-pairing:ratio=0.3", logits=logits, targets=targets)
    assert both == pytest.approx(1.3 * with_labels, rel=1e-12)


def test_decoupled_pairing_has_the_gradient_of_the_distance_alone() -> None:
    """It is that of the distance, scaled by the value that the term is to have: nothing flows through the scale."""
    logits = logits_of(WEAK, ADVERSARIAL)
    leaves = {copy: found.clone().requires_grad_() for copy, found in logits.items()}
    predictions = predictions_of(leaves)
    (labels, pairing) = ask(["decoupled-pairing:ratio=0.3"])
    label_loss = labels.compute(predictions)
    term = pairing.compute(Predictions(predictions.copies, predictions.labelled, label_loss.detach()))
    slopes = torch.autograd.grad(term, list(leaves.values()))
    weak, adversarial = arrays(logits)
    distance = reference.paired(weak, adversarial)
    scale = 0.3 * reference.cross_entropy(adversarial, HARD.numpy()) / distance
    p, q = (np.stack([np.exp(reference.log_softmax(row)) for row in found]) for found in (weak, adversarial))
    surprise = -np.log(q)
    expected = p * (surprise - (p * surprise).sum(1, keepdims=True)), q - p
    for slope, right in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(slope.numpy(), scale * right / IMAGES, rtol=1e-10)


def test_trades_is_a_divergence_with_gradients_through_both() -> None:
    logits = logits_of(WEAK, ADVERSARIAL)
    weak, adversarial = arrays(logits)
    assert extra("trades:beta=2", logits) == pytest.approx(2 * reference.divergence(weak, adversarial), rel=1e-10)
    check_gradient(("trades",), logits)
    leaves = {copy: found.clone().requires_grad_() for copy, found in logits.items()}
    total(ask(["trades"]), predictions_of(leaves)).backward()
    assert all(leaf.grad is not None and bool(leaf.grad.abs().sum() > 0) for leaf in leaves.values())


def test_confidence_penalty_is_minus_the_entropy() -> None:
    logits = logits_of(WEAK, ADVERSARIAL)
    each = [reference.entropy(found) for found in arrays(logits)]
    assert extra("confidence-penalty:beta=0.4", logits) == pytest.approx(-0.4 * each[1], rel=1e-10)
    both = extra("confidence-penalty:beta=0.4,on=weak+adversarial", logits)
    assert both == pytest.approx(-0.4 * sum(each) / 2, rel=1e-10)
    check_gradient(("confidence-penalty",), logits)


def test_jensen_shannon() -> None:
    logits = logits_of(CLEAN, WEAK, SECOND)
    expected = 12 * reference.jensen_shannon(arrays(logits))
    assert extra("jensen-shannon", logits) == pytest.approx(expected, rel=1e-10)
    check_gradient(("jensen-shannon",), logits)


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_lrm_is_the_sum_of_its_terms(targets: Tensor) -> None:
    logits = logits_of(WEAK, ADVERSARIAL)
    weak, adversarial = arrays(logits)
    labels = reference.cross_entropy(adversarial, reference.smoothed(targets.numpy(), 0.2, "wrong"))
    lengths = reference.squared_length(weak) + reference.squared_length(adversarial)
    found = value("lrm:beta=0.01,ratio=0.95,smoothing=0.2", logits=logits, targets=targets)
    assert found == pytest.approx(labels + 0.95 * labels + 0.01 * lengths, rel=1e-12)


ALL = {name: losses[name].copies or (WEAK, ADVERSARIAL) for name in losses}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("images", "classes"), [(1, 4), (3, 1), (1, 1), (2, 1000)])
def test_one_image_and_one_class(name: str, images: int, classes: int) -> None:
    targets = F.one_hot(torch.arange(images) % classes, classes).double()
    leaves = {copy: x.requires_grad_() for copy, x in logits_of(*ALL[name], images=images, classes=classes).items()}
    loss = total(ask([name]), predictions_of(leaves, targets))
    loss.backward()
    assert bool(loss.isfinite())
    assert all(leaf.grad is None or bool(leaf.grad.isfinite().all()) for leaf in leaves.values())
    if classes == 1 and name not in ("alp", "lrm", "logit-squeezing"):
        assert float(loss.detach()) == 0


EXTREMES = {
    "certain and equal": (1e4, 1e4),
    "certain of another": (1e4, -1e4),
    "impossible": (-math.inf, -math.inf),
    "impossible for the first": (-math.inf, 0.0),
}


@pytest.mark.parametrize("extremes", EXTREMES.values(), ids=EXTREMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "name", ["cross-entropy", "decoupled-pairing", "trades", "confidence-penalty", "jensen-shannon"]
)
def test_extreme_logits_give_the_limit(name: str, dtype: torch.dtype, extremes: tuple[float, float]) -> None:
    """Class 0 is certain or impossible; labels are of other classes."""
    logits = {copy: found.to(dtype) for copy, found in logits_of(*ALL[name]).items()}
    for number, found in enumerate(logits.values()):
        found[:, 0] = extremes[min(number, 1)]
    leaves = {copy: found.requires_grad_() for copy, found in logits.items()}
    targets = F.one_hot(LABELS.clamp_min(1), CLASSES)
    loss = total(ask([name]), predictions_of(leaves, targets, (next(reversed(leaves)),)))
    loss.backward()
    assert bool(loss.isfinite())
    assert all(leaf.grad is None or bool(leaf.grad.isfinite().all()) for leaf in leaves.values())


def test_an_impossible_class_changes_nothing() -> None:
    """Its logit is -inf: all terms are those of the other classes."""
    for name in ("cross-entropy", "decoupled-pairing", "trades", "confidence-penalty", "jensen-shannon"):
        logits = logits_of(*ALL[name])
        without = {copy: found[:, 1:] for copy, found in logits.items()}
        for found in logits.values():
            found[:, 0] = -math.inf
        targets = F.one_hot(LABELS.clamp_min(1), CLASSES)
        expected = value(name, logits=without, targets=targets[:, 1:])
        assert value(name, logits=logits, targets=targets) == pytest.approx(expected, rel=1e-12), name


def test_a_right_class_that_is_impossible_costs_infinitely_much() -> None:
    logits = logits_of(WEAK)
    logits[WEAK][:, 0] = -math.inf
    assert value(logits=logits) == math.inf


def test_pairing_of_certain_predictions_is_not_blown_up() -> None:
    """The distance is next to 0, and of its gradient only rounding is left, whatever the label loss is."""
    for sure in (20.0, 40.0, 100.0, 1e4):
        certain = torch.zeros(6, 10)
        certain[:, 0] = sure
        leaves = {WEAK: certain.clone().requires_grad_(), ADVERSARIAL: (certain + 1e-3).requires_grad_()}
        wrong = F.one_hot(torch.full((6,), 3), 10)
        total(ask(["decoupled-pairing:ratio=0.95"]), predictions_of(leaves, wrong)).backward()
        for leaf in leaves.values():
            assert leaf.grad is not None
            assert float(leaf.grad.abs().max()) < 100 * sure, sure


PERMUTATION = torch.tensor([2, 0, 1, 4, 3])
KEPT = torch.tensor([0.1, 0.5, 1.0, 0.0, 0.7], dtype=torch.float64)
EACH = nn.CrossEntropyLoss(reduction="none")


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("cut", [False, True], ids=["moex", "moex and cutmix"])
def test_mixed_targets_are_the_terms_that_papers_add_up(targets: Tensor, cut: bool) -> None:
    """MoEx' two, and the three of MoEx with CutMix: values and gradients."""
    exchange = Exchange(PERMUTATION, 0.9)
    cutmix = surgeon.CutMix(PERMUTATION, KEPT) if cut else None
    kept = KEPT[:, None] if cut else torch.ones(IMAGES, 1, dtype=torch.float64)
    mixed = kept * targets + (1 - kept) * targets[PERMUTATION]
    mixed = 0.9 * mixed + 0.1 * mixed[PERMUTATION]
    both = []
    for loss in (
        lambda logits: total(ask(()), predictions_of({WEAK: logits}, mixed)),
        lambda logits: surgeon.exchanged_loss(EACH, logits, targets, exchange, cutmix),
    ):
        leaf = logits_of(WEAK)[WEAK].requires_grad_()
        found = loss(leaf)
        both.append((found, *torch.autograd.grad(found, leaf)))
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
