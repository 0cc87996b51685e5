"""Images without labels: their term of the loss, their copies in a step, their batches."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import surgeon
from surgeon.augment.pipeline import Augmentation
from surgeon.core.errors import SurgeonError
from surgeon.core.processes import Processes
from surgeon.data.opening import open_data
from surgeon.inserts.crossnorm.layer import CrossNorm, Turns
from surgeon.losses.base import Copy, Predicted, Predictions, ask
from surgeon.training.copies import Copies, plan_copies
from surgeon.training.feeding import Feed
from surgeon.training.objective import Draws, Given, Objective
from surgeon.training.recipe import check_recipe
from surgeon.training.unlabelled import Unlabelled
from tests.helpers import SmallResNet, randn, small_resnet
from tests.reference import losses as reference
from tests.unit.test_attacks import PLAIN
from tests.unit.training.test_objective import NOTHING

WEAK, STRONG = Copy.UNLABELLED_WEAK, Copy.UNLABELLED_STRONG
FIXMATCH = "pseudo-label:threshold=0.5"


def logits_of(images: int, seed: int) -> Tensor:
    return 2 * randn(images, 4, seed=seed, dtype=torch.float64)


@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.9, 1.0])
def test_the_term_is_the_formula(threshold: float) -> None:
    weak, strong = logits_of(7, 1), logits_of(7, 2)
    (_, term) = ask([f"pseudo-label:threshold={threshold},weight=3"])
    given = Predictions({WEAK: Predicted(weak, weak * 0), STRONG: Predicted(strong, strong * 0)}, ())
    expected = 3 * reference.pseudo_labelled(weak.numpy(), strong.numpy(), threshold)
    assert float(term.compute(given)) == pytest.approx(expected, rel=1e-12, abs=1e-15)
    confident = float((weak.softmax(1).max(1).values >= threshold).double().mean())
    assert {name: float(share) for name, share in term.observe(given).items()} == {"confident pseudo-labels": confident}


def test_the_weak_copy_is_a_label_and_learns_nothing() -> None:
    weak, strong = logits_of(7, 1).requires_grad_(), logits_of(7, 2).requires_grad_()
    (_, term) = ask(["pseudo-label:threshold=0.6"])
    term.compute(Predictions({WEAK: Predicted(weak, weak * 0), STRONG: Predicted(strong, strong * 0)}, ())).backward()
    assert weak.grad is None
    assert strong.grad is not None
    confident = weak.softmax(1).max(1).values >= 0.6
    assert torch.equal(strong.grad.abs().sum(1) > 0, confident)


def test_a_loop_of_ones_own_gives_the_copies_by_name() -> None:
    criterion = surgeon.loss(FIXMATCH)
    assert criterion.copies == ("weak", "unlabelled-weak", "unlabelled-strong")
    logits = {"weak": logits_of(3, 0), "unlabelled-weak": logits_of(8, 1), "unlabelled-strong": logits_of(8, 2)}
    labels = torch.tensor([0, 1, 3])
    pseudo = reference.pseudo_labelled(logits["unlabelled-weak"].numpy(), logits["unlabelled-strong"].numpy(), 0.5)
    expected = float(F.cross_entropy(logits["weak"], labels)) + pseudo
    assert float(criterion(logits, labels)) == pytest.approx(expected, rel=1e-12)


def given() -> Given:
    """Three labelled images and six without a label."""
    shown = randn(3, 3, 8, 8), randn(3, 3, 8, 8, seed=9)
    others = randn(6, 3, 8, 8, seed=1), randn(6, 3, 8, 8, seed=2)
    return Given(shown, torch.tensor([0, 1, 3]), torch.arange(3), others)


UNLABELLED = dict.fromkeys((WEAK, STRONG), NOTHING)


def step(model: nn.Module, copies: Copies, batch: Given) -> Tensor:
    return Objective(model, ask([FIXMATCH]), copies, 4)(model, batch, Draws(torch.Generator())).loss


def pseudo(weak: Tensor, strong: Tensor) -> Tensor:
    confidence, label = weak.softmax(1).max(1)
    return (F.cross_entropy(strong, label, reduction="none") * (confidence >= 0.5)).mean()


def test_a_step_is_the_one_written_by_hand() -> None:
    """All copies go through the network as one batch, by whose statistics they are normalised."""
    model, batch = small_resnet().train(), given()
    copies = Copies({Copy.WEAK: NOTHING}, seen=(Copy.WEAK, WEAK, STRONG), unlabelled=UNLABELLED)
    loss = step(model, copies, Given(batch.images[:1], batch.labels, batch.indices, batch.unlabelled))
    labelled, weak, strong = model(torch.cat([batch.images[0], *batch.unlabelled])).split([3, 6, 6])
    torch.testing.assert_close(loss, F.cross_entropy(labelled, batch.labels) + pseudo(weak, strong))


def test_strong_copies_take_the_auxiliary_branch() -> None:
    torch.manual_seed(0)
    model, batch = surgeon.convert(SmallResNet(), "split").train(), given()
    seen = (Copy.WEAK, WEAK, Copy.STRONG, STRONG)
    decoded = {Copy.WEAK: NOTHING, Copy.STRONG: NOTHING}
    labelled = (Copy.WEAK, Copy.STRONG)
    loss = step(model, Copies(decoded, seen, labelled, branches=True, unlabelled=UNLABELLED), batch)
    with surgeon.branch(model, "main"):
        main, weak = model(torch.cat([batch.images[0], batch.unlabelled[0]])).split([3, 6])
    with surgeon.branch(model, "aux"):
        aux, strong = model(torch.cat([batch.images[1], batch.unlabelled[1]])).split([3, 6])
    of_labels = (F.cross_entropy(main, batch.labels) + F.cross_entropy(aux, batch.labels)) / 2
    torch.testing.assert_close(loss, of_labels + pseudo(weak, strong), rtol=1e-4, atol=1e-5)


def test_units_that_restyle_leave_all_but_strong_copies_as_they_are() -> None:
    class Sees(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unit = CrossNorm(Turns(active=1, p=1.0, seed=None))

        def forward(self, x: Tensor) -> Tensor:
            self.unit.turns.begin()
            self.out = self.unit(x)
            return self.out.mean((2, 3)) @ torch.eye(3, 4)

    model, batch = Sees().train(), given()
    copies = Copies({Copy.WEAK: NOTHING}, seen=(Copy.WEAK, WEAK, STRONG), unlabelled=UNLABELLED)
    torch.manual_seed(1)
    step(model, copies, Given(batch.images[:1], batch.labels, batch.indices, batch.unlabelled))
    assert torch.equal(model.out[:9], torch.cat([batch.images[0], batch.unlabelled[0]]))
    restyled, strong = model.out[9:], batch.unlabelled[1]
    assert not torch.equal(restyled, strong)
    styles = {round(float(x), 4) for x in strong.mean((2, 3)).flatten()}
    assert {round(float(x), 4) for x in restyled.mean((2, 3)).flatten()} <= styles, "styles of strong copies alone"


def planned(branches: bool = False, model: nn.Module | None = None, **keys: object) -> Copies:
    return plan_copies(check_recipe({"loss": FIXMATCH, **keys}, "x"), model or nn.Identity(), PLAIN, branches)


def test_the_copies_of_a_recipe() -> None:
    assert planned().seen == (Copy.WEAK, WEAK, STRONG)
    assert planned(attack="fgsm").seen == (Copy.ADVERSARIAL, WEAK, STRONG)
    split = planned(branches=True)
    assert split.seen == (Copy.WEAK, WEAK, Copy.STRONG, STRONG)
    assert split.branches
    weak, strong = planned(augment=["mixup", "cutout", "gaussian-noise"]).unlabelled.values()
    assert isinstance(weak, Augmentation)
    assert (weak.image, weak.batch, weak.mixing) == ((), (), ()), "cropped and flipped, nothing else"
    assert strong.image or strong.batch


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"strong": "fgsm"}, "strong='fgsm' attacks images away from their labels, and unlabelled ones have none."),
        ({"strong": "mixup"}, "of unlabelled images it cannot mix the labels"),
        ({"branches": True, "loss": [FIXMATCH, "cross-entropy:on=weak"]}, "as many copies through its main branch"),
    ],
)
def test_what_cannot_be_is_told(keys: dict[str, object], told: str) -> None:
    with pytest.raises(SurgeonError) as refused:
        planned(**keys)  # type: ignore[arg-type]
    assert told in refused.value.message
    assert refused.value.hint


def test_labels_that_nobody_knows_are_not_mixed_within_the_network() -> None:
    model = surgeon.convert(SmallResNet(), "moex:site=bn1", inputs=(randn(2, 3, 8, 8),))
    with pytest.raises(SurgeonError, match="cannot mix labels that nobody knows"):
        planned(model=model)


@pytest.mark.parametrize("term", ["cross-entropy", "logit-squeezing", "confidence-penalty"])
def test_unlabelled_copies_have_no_labels_to_name(term: str) -> None:
    with pytest.raises(SurgeonError, match="'unlabelled-weak' copies have no labels: name clean"):
        check_recipe({"loss": [f"{term}:on=unlabelled-weak"]}, "x")


def test_batches_go_on_where_they_were_and_differ_from_the_labelled_ones() -> None:
    digits = open_data("digits", "train")
    recipe = check_recipe({"unlabelled_ratio": 3, "loss": FIXMATCH}, "x")
    few = digits.subset(range(10))
    unlabelled = Unlabelled(open_data("digits", "train", labelled=False), 3)
    feed = Feed(few, 4, recipe, unlabelled, Processes(), 0, False)
    assert feed.steps_per_epoch == len(digits) // 12
    copies = planned(augment=["gaussian-noise"])
    whole = list(feed.batches(copies, 0, 5))
    assert [(len(batch.labels), batch.images) for batch in whole] == [(4, 16)] * 5
    for one, later in zip(whole[3:], feed.batches(copies, 3, 5), strict=True):
        assert torch.equal(one.labels, later.labels)
        pairs = zip((*one.copies, *one.unlabelled), (*later.copies, *later.unlabelled), strict=True)
        assert all(torch.equal(*pair) for pair in pairs)
    assert not torch.equal(*whole[0].unlabelled)
    with pytest.raises(SurgeonError, match=r"goes with 1,500 unlabelled ones, and there are [\d,]+"):
        Feed(digits, 500, recipe, unlabelled, Processes(), 0, False).check()
