"""Padding: units take no moments of it and leave it as it is, whatever it holds and wherever it is."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.inserts.crossnorm.layer import CrossNorm, Turns
from surgeon.inserts.crossnorm.styles import cross_normalise, cross_normalise_channels
from surgeon.inserts.moex.layer import MomentExchange
from surgeon.inserts.selfnorm.layer import SelfNorm
from tests.helpers import randn

LENGTHS = torch.tensor([6, 4, 5, 3])
MASK = torch.arange(6) >= LENGTHS[:, None]
X = randn(4, 5, 6)
PARTNERS = torch.tensor([2, 0, 3, 1])


def crossnorm(mode: str = "two-instance", **options: str) -> CrossNorm:
    unit = CrossNorm(Turns(active=1, p=1.0, seed=3), mode=mode, **options)
    unit.turns.begin()
    return unit.train()


def restyled(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    own = (x.var(1, keepdim=True) + 1e-5).sqrt()
    return (x - x.mean(1, keepdim=True)) / own * std + mean


def test_styles_are_those_of_what_is_no_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the formula in float64, example by example, on what is left when padding is cut off."""
    x, unit = X.double(), crossnorm()
    monkeypatch.setattr(torch, "randperm", lambda n, generator=None: PARTNERS)  # noqa: ARG005
    with surgeon.padding(MASK):
        y = unit(X.masked_fill(MASK[:, None], torch.nan))
    for i, length in enumerate(LENGTHS):
        partner = x[PARTNERS[i], :, : LENGTHS[PARTNERS[i]]]
        mean, std = partner.mean(1, keepdim=True), (partner.var(1, keepdim=True) + 1e-5).sqrt()
        torch.testing.assert_close(
            y[i, :, :length].double(), restyled(x[i, :, :length], mean, std), rtol=1e-5, atol=1e-5
        )
        assert y[i, :, length:].isnan().all(), "padding stays as it is"


def test_channels_of_one_example(monkeypatch: pytest.MonkeyPatch) -> None:
    order, unit = torch.tensor([1, 2, 3, 4, 0]), crossnorm("one-instance")
    monkeypatch.setattr(torch, "randperm", lambda n, generator=None: order)  # noqa: ARG005
    with surgeon.padding(MASK):
        y = unit(X)
    for i, length in enumerate(LENGTHS):
        alone = cross_normalise_channels(X[i : i + 1, :, :length], order)
        torch.testing.assert_close(y[i : i + 1, :, :length], alone)
        assert torch.equal(y[i, :, length:], X[i, :, length:])


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("form", ["residual", "published"])
def test_selfnorm_gates_by_what_is_no_padding(two_sided: bool, form: str) -> None:
    torch.manual_seed(0)
    unit = SelfNorm(5, two_sided, form).eval()  # type: ignore[arg-type]
    for parameter in unit.parameters():
        nn.init.normal_(parameter)
    filled = X.masked_fill(MASK[:, None], torch.nan).requires_grad_()
    with surgeon.padding(MASK):
        y = unit(filled)
    for i, length in enumerate(LENGTHS):
        torch.testing.assert_close(y[i : i + 1, :, :length], unit(X[i : i + 1, :, :length]))
        assert y[i, :, length:].isnan().all()
    y.nan_to_num(0).sum().backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in unit.parameters())  # type: ignore[union-attr]
    assert filled.grad is not None
    assert torch.equal(filled.grad.masked_fill(~MASK[:, None], 0), torch.zeros(4, 5, 6))


def test_an_example_of_one_position_has_no_style() -> None:
    mask = torch.arange(6) >= torch.tensor([6, 1, 0, 4])[:, None]
    for unit in (crossnorm(), crossnorm("one-instance")):
        with surgeon.padding(mask):
            y = unit(X)
        assert torch.equal(y[1:3], X[1:3])
        assert bool(y.isfinite().all())
    with surgeon.padding(mask):
        assert bool(SelfNorm(5, True, "published").train()(X).isfinite().all())


def test_without_padding_nothing_changes() -> None:
    nowhere = torch.zeros(4, 6, dtype=torch.bool)
    for unit in (crossnorm(), crossnorm("one-instance"), SelfNorm(5, True, "published").eval()):
        copy = deepcopy(unit)
        with surgeon.padding(nowhere):
            padded = unit(X)
        torch.testing.assert_close(padded, copy(X))
        with surgeon.padding(None):
            torch.testing.assert_close(deepcopy(copy).eval()(X), deepcopy(copy).eval()(X))


def test_moex_hears_of_it_too() -> None:
    unit, given = MomentExchange("in", p=1.0).train(), MomentExchange("in", p=1.0).train()
    unit.permutation = given.permutation = PARTNERS
    given.mask = MASK
    with surgeon.padding(MASK):
        torch.testing.assert_close(unit(X), given(X))


def test_a_mask_follows_features_that_grow_shorter() -> None:
    """A pooled position is padding if all that it stands for is."""
    short = X[:, :, :3]
    with surgeon.padding(MASK):
        y = crossnorm()(short)
    expected = torch.arange(3) >= torch.tensor([3, 2, 3, 2])[:, None]
    with surgeon.padding(expected):
        assert torch.equal(y, crossnorm()(short))
    assert torch.equal(y.masked_fill(~expected[:, None], 0), short.masked_fill(~expected[:, None], 0))


def test_checkpointing_repeats_a_step_with_its_padding() -> None:
    torch.manual_seed(0)
    found = []
    for again in (False, True):
        x, unit = X.clone().requires_grad_(), crossnorm()
        with surgeon.padding(MASK):
            y = checkpoint(unit, x, use_reentrant=False) if again else unit(x)
        y.square().sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        (MASK.float(), "true or false, not torch.float32"),
        (torch.tensor([True]), "has shape (N, positions)"),
        (MASK[:3], "does not fit features of shape (4, 5, 6)"),
        (MASK[:, :4], "does not fit features of shape (4, 5, 6)"),
        (MASK[:, None], "does not fit features of shape (4, 5, 6)"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask: Tensor, told: str) -> None:
    with pytest.raises(SurgeonError) as refused, surgeon.padding(mask):
        crossnorm()(X)
    assert told in refused.value.message


def test_boxes_and_padding_do_not_go_together() -> None:
    x, mask = randn(3, 2, 4, 4), torch.zeros(3, 4, 4, dtype=torch.bool)
    with surgeon.padding(mask):
        torch.testing.assert_close(crossnorm()(x), cross_normalise(x, crossnorm_partners(x)))
        with pytest.raises(SurgeonError, match="cuts boxes, which may be padding"):
            crossnorm(crop="style")(x)


def crossnorm_partners(x: Tensor) -> Tensor:
    """Whom a fresh unit of the same seed draws."""
    turns = Turns(active=1, p=1.0, seed=3)
    turns.begin()
    return torch.randperm(len(x), generator=turns.generator)
