"""What every term of the loss promises, ours and those of others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from surgeon.losses.base import Asked, Copy, Predicted, Predictions, ask, losses
from surgeon.training.objective import total
from tests.helpers import randn

CLASSES = 5


def copies_for(terms: list[Asked]) -> tuple[Copy, ...]:
    """The copies that terms need, and no other; those whose labels count come first."""
    wanted = [term.loss.labels_on for term in terms if term.loss.labels_on is not None]
    return tuple(dict.fromkeys([*wanted, *(copy for term in terms for copy in term.copies)])) or (Copy.WEAK,)


def predictions_for(terms: list[Asked], images: int = 6, dtype: torch.dtype = torch.float64) -> Predictions:
    targets = 0.6 * F.one_hot(torch.arange(images) % CLASSES, CLASSES) + 0.4 / CLASSES
    made = {
        copy: Predicted((2 * randn(images, CLASSES, seed=number)).to(dtype).requires_grad_(), targets.to(dtype))
        for number, copy in enumerate(copies_for(terms))
    }
    return Predictions(made, (next(iter(made)),))


def leaves(predictions: Predictions) -> list[Tensor]:
    return [found.logits for found in predictions.copies.values()]


def check_term(name: str) -> None:
    """All promises; for a term that stands for several, their sum keeps them."""
    terms = ask([name])
    assert losses[name].facts()["copies"] == (" + ".join(losses[name].copies) or "any")
    for images in (6, 1):
        predictions = predictions_for(terms, images)
        before = [(found.logits.detach().clone(), found.targets.clone()) for found in predictions.copies.values()]
        drawn = torch.get_rng_state()
        loss = total(terms, predictions)
        assert loss.shape == ()
        assert loss.dtype is torch.float64
        assert bool(loss.isfinite())
        slopes = torch.autograd.grad(loss, leaves(predictions), allow_unused=True)
        assert all(slope is None or bool(slope.isfinite().all()) for slope in slopes)
        assert any(slope is not None and bool(slope.any()) for slope in slopes), "nothing to learn from"
        for (logits, targets), found in zip(before, predictions.copies.values(), strict=True):
            assert torch.equal(found.logits, logits), "what a term gets is not changed"
            assert torch.equal(found.targets, targets)
        assert torch.equal(torch.get_rng_state(), drawn)
        assert torch.equal(total(terms, predictions), loss)
    single, double = (total(terms, predictions_for(terms, dtype=d)).detach() for d in (torch.float32, torch.float64))
    assert single.dtype is torch.float32
    assert float(single) == pytest.approx(float(double), rel=1e-5)


@pytest.mark.parametrize("name", list(losses))
def test_a_term_keeps_its_promises(name: str) -> None:
    check_term(name)


@pytest.mark.parametrize("name", list(losses))
def test_a_term_has_the_gradient_of_its_value(name: str) -> None:
    """But for what it does not let gradients through, as decoupled pairing does."""
    if name in ("decoupled-pairing", "lrm"):
        pytest.skip("its value does not depend on the distance, whose gradient it has")
    terms = ask([name])
    predictions = predictions_for(terms, images=2)

    def loss(*each: Tensor) -> Tensor:
        made = zip(predictions.copies, each, strict=True)
        copies = {copy: Predicted(logits, predictions[copy].targets) for copy, logits in made}
        return total(terms, Predictions(copies, predictions.labelled))

    torch.autograd.gradcheck(loss, tuple(leaves(predictions)))
