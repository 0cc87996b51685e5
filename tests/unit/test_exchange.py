"""Moment exchange: what it does to moments, shapes, dtypes, padding and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from surgeon.inserts.moex.exchange import exchange_moments
from surgeon.layers.moments import Moments, moments
from tests.helpers import randn
from tests.reference import inserts

KINDS = list(Moments)
SHAPES = [(3, 8, 5, 7), (3, 8, 9), (3, 8, 2, 3, 4), (4, 12, 1, 3)]
PARTNERS = torch.tensor([2, 0, 1])


def styled(*shape: int, seed: int = 0, offset: float = 0.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Features whose examples differ in mean and deviation."""
    scale = torch.arange(1, shape[0] + 1).reshape(-1, *[1] * (len(shape) - 1))
    return (randn(*shape, seed=seed, dtype=torch.float64) * scale + scale + offset).to(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_has_the_moments_of_the_partner(kind: Moments, shape: tuple[int, ...]) -> None:
    x = styled(*shape, dtype=torch.float64)
    partners = torch.arange(shape[0]).roll(1)
    y = exchange_moments(x, partners, kind, groups=4, eps=0)
    for got, wanted in zip(moments(y, kind, groups=4, eps=0), moments(x, kind, groups=4, eps=0), strict=True):
        torch.testing.assert_close(got, wanted[partners], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("positive_only", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_reference(kind: Moments, positive_only: bool, shape: tuple[int, ...]) -> None:
    """Positive entries in float64: their variance cancels as published, which few and close ones show in float32."""
    dtype = torch.float64 if positive_only else torch.float32
    x, partners = styled(*shape, dtype=dtype), torch.arange(shape[0]).roll(1)
    expected = inserts.moex(x.double(), partners, kind, positive_only=positive_only)
    y = exchange_moments(x, partners, kind, positive_only=positive_only).double()
    assert (y - expected).abs().max() <= 1e-5 * (1 + expected.abs().max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("positive_only", [False, True])
def test_own_partner_changes_nothing(kind: Moments, positive_only: bool) -> None:
    x = styled(3, 8, 5, 7)
    assert torch.equal(exchange_moments(x, torch.arange(3), kind, positive_only=positive_only), x)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_broadcast_against_the_features(kind: Moments) -> None:
    x = styled(3, 8, 5, 7)
    mean, std = moments(x, kind)
    assert torch.broadcast_shapes(mean.shape, x.shape) == x.shape == torch.broadcast_shapes(std.shape, x.shape)
    normalised = ((x - mean) / std).double()
    again, one = moments(normalised, kind)
    torch.testing.assert_close(again, torch.zeros_like(again), rtol=0, atol=1e-3)
    assert (one < 1.001).all()


def test_moments_by_torch() -> None:
    x = styled(3, 8, 5, 7)
    for kind, dims in {"pono": (1,), "in": (2, 3), "ln": (1, 2, 3)}.items():
        var, mean = torch.var_mean(x, dims, keepdim=True)
        torch.testing.assert_close(moments(x, kind), (mean, (var + 1e-5).sqrt()))
    torch.testing.assert_close(moments(x, "gn", groups=8), moments(x, "in"))
    torch.testing.assert_close(moments(x, "gn", channels_per_group=4), moments(x, "gn", groups=2))


def test_positive_only_by_hand() -> None:
    x = torch.tensor([[1.0, 3.0, -5.0, 0.0], [-1.0, -2.0, -3.0, -4.0]])
    mean, std = moments(x, "pono", positive_only=True, eps=0.25)
    torch.testing.assert_close(mean, torch.tensor([[2.0], [0.0]]))
    torch.testing.assert_close(std, torch.tensor([[1.25**0.5], [0.5]]))


@pytest.mark.parametrize("kind", KINDS)
def test_padding_counts_for_nothing_and_stays(kind: Moments) -> None:
    x = styled(3, 8, 6)
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[:, 4:] = True
    other = x.masked_fill(mask[:, None], torch.nan).requires_grad_()
    y = exchange_moments(other, PARTNERS, kind, mask=mask)
    torch.testing.assert_close(y[..., :4], exchange_moments(x[..., :4], PARTNERS, kind), rtol=1e-5, atol=1e-5)
    assert y[..., 4:].isnan().all()
    y[..., :4].sum().backward()
    assert other.grad is not None
    assert other.grad.isfinite().all()


def test_examples_of_different_lengths() -> None:
    x = styled(3, 8, 6, dtype=torch.float64)
    lengths = torch.tensor([6, 2, 4])
    mask = torch.arange(6) >= lengths[:, None]
    mean, std = moments(x, "in", mask=mask, eps=0)
    for i, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(mean[i], x[i, :, :length].mean(-1, keepdim=True))
        torch.testing.assert_close(std[i], x[i, :, :length].std(-1, keepdim=True))
    pono = exchange_moments(x, PARTNERS, "pono", mask=mask)
    assert torch.equal(pono[0, :, 4:], x[0, :, 4:])  # its partner ends there
    assert not torch.equal(pono[0, :, :4], x[0, :, :4])


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((3, 8), {"kind": "in"}),
        ((3, 8, 1, 1), {"kind": "in"}),
        ((3, 1, 5, 5), {"kind": "pono"}),
        ((3, 1, 1, 1), {"kind": "ln"}),
        ((3, 8, 1), {"kind": "gn", "groups": 8}),
        ((3, 8, 5), {"kind": "gpono", "channels_per_group": 1}),
        ((3, 8, 2), {"kind": "in", "mask": torch.tensor([[False, True]] * 3)}),
    ],
)
def test_a_single_value_is_refused(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no variance"):
        moments(torch.ones(shape), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "gn", "groups": 3},
        {"kind": "gpono", "channels_per_group": 3},
        {"kind": "gn", "groups": 0},
        {"kind": "gn", "channels_per_group": 16},
        {"kind": "bn"},
        {"kind": "in", "mask": torch.zeros(3, 5)},
        {"kind": "in", "mask": torch.zeros(3, 4, dtype=torch.bool)},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cannot be cut|not a valid|bool mask"):
        moments(torch.ones(3, 8, 5), **options)


def test_a_permutation_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="permutation of 3"):
        exchange_moments(torch.ones(3, 8, 5), torch.tensor([0]), "ln")


@pytest.mark.parametrize("kind", ["pono", "ln", "gn", "gpono"])
def test_features_without_positions(kind: str) -> None:
    x = styled(3, 8)
    torch.testing.assert_close(
        exchange_moments(x, PARTNERS, kind), exchange_moments(x[..., None], PARTNERS, kind)[..., 0]
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_summed_in_single(kind: Moments, dtype: torch.dtype) -> None:
    x = styled(3, 8, 5, 7, offset=100.0, dtype=dtype)
    y = exchange_moments(x, PARTNERS, kind)
    assert y.dtype == dtype
    assert moments(x, kind)[0].dtype == torch.float32
    torch.testing.assert_close(y, exchange_moments(x.float(), PARTNERS, kind).to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_format_is_kept(kind: Moments) -> None:
    x = styled(3, 8, 5, 7)
    y = exchange_moments(x.contiguous(memory_format=torch.channels_last), PARTNERS, kind)
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, exchange_moments(x, PARTNERS, kind), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("positive_only", [False, True])
def test_gradients(kind: Moments, positive_only: bool) -> None:
    x = styled(3, 4, 3, dtype=torch.float64).requires_grad_()
    mask = torch.tensor([[False, False, True], [False] * 3, [False] * 3])
    options: dict[str, Any] = {"kind": kind, "groups": 2, "positive_only": positive_only, "mask": mask, "eps": 1e-2}
    assert torch.autograd.gradcheck(lambda t: exchange_moments(t, PARTNERS, **options), x)


@pytest.mark.parametrize("kind", KINDS)
def test_large_means(kind: Moments) -> None:
    x = styled(3, 8, 9, offset=1e3)
    expected = exchange_moments(x.double(), PARTNERS, kind)
    scale = (moments(x, kind)[1][PARTNERS] / moments(x, kind)[1]).max().item()
    torch.testing.assert_close(exchange_moments(x, PARTNERS, kind).double(), expected, rtol=0, atol=2e-4 * (1 + scale))
