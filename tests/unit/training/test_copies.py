"""Which copies a step makes of its images, where labels count, and what cannot be."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.losses.base import Copy, ask
from surgeon.training.copies import Copies, plan_copies
from surgeon.training.objective import Draws, Given, Objective
from surgeon.training.recipe import check_recipe
from tests.helpers import randn, small_resnet
from tests.unit.test_attacks import PLAIN

CLEAN, WEAK, SECOND, STRONG, ADVERSARIAL, *UNLABELLED = Copy
ATTACK = "fgsm"


def planned(branches: bool = False, model: nn.Module | None = None, **keys: object) -> Copies:
    return plan_copies(check_recipe(keys, "x"), model or nn.Identity(), PLAIN, branches)


def given_to(copies: Copies) -> Given:
    """Four images, in every copy other ones."""
    images = tuple(randn(4, 3, 8, 8, seed=number) for number in range(len(copies.augmentations)))
    return Given(images, torch.arange(4), torch.arange(4))


@pytest.mark.parametrize(
    ("branches", "keys", "seen", "labelled", "decoded"),
    [
        (False, {}, [WEAK], [WEAK], [WEAK]),
        (True, {}, [WEAK, STRONG], [WEAK, STRONG], [WEAK, STRONG]),
        (False, {"attack": ATTACK}, [ADVERSARIAL], [ADVERSARIAL], [WEAK]),
        (True, {"attack": ATTACK}, [ADVERSARIAL, STRONG], [ADVERSARIAL, STRONG], [WEAK, STRONG]),
        (True, {"strong": ATTACK}, [WEAK, ADVERSARIAL], [WEAK, ADVERSARIAL], [WEAK]),
        (True, {"strong": ATTACK, "loss": "alp"}, [WEAK, ADVERSARIAL], [WEAK, ADVERSARIAL], [WEAK]),
        (False, {"strong": ATTACK}, [WEAK], [WEAK], [WEAK]),
        (False, {"attack": ATTACK, "loss": "lrm"}, [WEAK, ADVERSARIAL], [ADVERSARIAL], [WEAK]),
        (False, {"attack": ATTACK, "loss": "trades"}, [WEAK, ADVERSARIAL], [WEAK], [WEAK]),
        (False, {"loss": "jensen-shannon"}, [CLEAN, WEAK, SECOND], [CLEAN], [CLEAN, WEAK, SECOND]),
        (False, {"loss": "cross-entropy:on=clean"}, [CLEAN], [CLEAN], [CLEAN]),
        (True, {"loss": "cross-entropy:on=weak"}, [WEAK], [WEAK], [WEAK]),
        (False, {"attack": ATTACK, "loss": "cross-entropy:on=adversarial+weak"},
            [WEAK, ADVERSARIAL], [WEAK, ADVERSARIAL], [WEAK]),
        (False, {"attack": ATTACK, "loss": ["trades", "jensen-shannon", "cross-entropy:on=weak"]},
            [CLEAN, WEAK, SECOND, ADVERSARIAL], [WEAK], [CLEAN, WEAK, SECOND]),
    ],
)  # fmt: skip
def test_the_copies_of_a_recipe(
    branches: bool, keys: dict[str, object], seen: list[Copy], labelled: list[Copy], decoded: list[Copy]
) -> None:
    copies = planned(branches, **keys)
    assert [list(copies.seen), list(copies.labelled), list(copies.augmentations)] == [seen, labelled, decoded]
    assert copies.branches == (len(seen) == 2 and branches)
    assert (copies.attack is not None) == (ADVERSARIAL in seen)
    assert copies.attack is None or copies.attack.auxiliary == ("strong" in keys)
    assert copies.attack is None or copies.attack.predictions == ("trades" in str(keys))


@pytest.mark.parametrize("named", ["clean", "clean+weak"])
def test_what_follows_the_labels_goes_where_they_count(named: str) -> None:
    """The confidence penalty has no copies of its own."""
    model = small_resnet()
    specs = [f"cross-entropy:on={named}", "confidence-penalty"]
    copies = planned(model=model, loss=specs)
    given = Given(
        tuple(randn(4, 3, 8, 8, seed=n) for n in range(len(copies.augmentations))), torch.arange(4), torch.arange(4)
    )
    outcome = Objective(model, ask(specs), copies, 4)(model, given, Draws(torch.Generator()))
    logits = torch.cat([model(images) for images in given.images])
    entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
    labels = torch.arange(4).repeat(len(given.images))
    expected = nn.functional.cross_entropy(logits, labels) - 0.1 * entropy
    torch.testing.assert_close(outcome.loss, expected, rtol=1e-5, atol=1e-6)
    assert outcome.examples == len(labels)
    assert int(outcome.correct) == int((logits.argmax(1) == labels).sum())


@pytest.mark.parametrize(
    ("branches", "keys", "told"),
    [
        (False, {"loss": "alp"}, "The loss alp needs adversarial copies, and no attack makes them."),
        (False, {"loss": "cross-entropy:on=weak+adversarial"}, "needs adversarial copies"),
        (False, {"loss": "lrm"}, "decoupled-pairing needs adversarial copies"),
        (True, {"loss": "trades"}, "needs adversarial copies"),
        (False, {"attack": ATTACK, "loss": "cross-entropy:on=weak"}, "no term of the loss looks at them"),
        (False, {"attack": ATTACK, "loss": "jensen-shannon"}, "no term of the loss looks at them"),
        (True, {"attack": ATTACK, "strong": "pgd"}, "attack='fgsm' and strong='pgd' both make adversarial copies."),
        (True, {"strong": ATTACK, "loss": "cross-entropy:on=weak"}, "no term of the loss looks at them"),
        (False, {"loss": "cross-entropy:on=strong"}, "the network has none"),
        (False, {"loss": "logit-squeezing:on=weak+strong"}, "the network has none"),
        (True, {"loss": "jensen-shannon"}, "clean, weak and second would take the first and strong the second"),
        (True, {"attack": ATTACK, "loss": "lrm"}, "weak and adversarial would take the first and strong the second"),
        (False, {"attack": ATTACK, "loss": ["trades", "jensen-shannon"]}, "disagree on the copies whose labels count"),
        (False, {"augment": "mixup", "loss": "jensen-shannon"}, "each would be mixed with another image"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told(branches: bool, keys: dict[str, object], told: str) -> None:
    with pytest.raises(SurgeonError) as refused:
        planned(branches, **keys)
    assert told in refused.value.message
    assert refused.value.hint
    assert refused.value.exit_code == 2


def test_a_branch_that_no_term_looks_at_is_left_alone() -> None:
    model = surgeon.convert(small_resnet(), "split").train()
    copies = planned(True, model, loss="cross-entropy:on=weak")
    objective = Objective(model, ask(["cross-entropy:on=weak"]), copies, 4)
    before = {name: buffer.clone() for name, buffer in model.named_buffers() if ".aux." in name}
    objective(
        model, Given((randn(4, 3, 8, 8),), torch.arange(4), torch.arange(4)), Draws(torch.Generator())
    ).loss.backward()
    assert before
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers() if name in before)
    assert all((".aux." in name) == (parameter.grad is None) for name, parameter in model.named_parameters())
