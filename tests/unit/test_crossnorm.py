"""CrossNorm: what is exchanged, what stays, and how boxes are drawn."""

from __future__ import annotations

import pytest
import torch

from surgeon.inserts.crossnorm.styles import Box, cross_normalise, cross_normalise_channels, random_box
from surgeon.inserts.moex.exchange import exchange_moments
from tests.helpers import randn
from tests.reference import inserts

PARTNERS = torch.tensor([2, 0, 1])
BOX: Box = (1, 2, 4, 6)


def crop(x: torch.Tensor, box: Box = BOX) -> torch.Tensor:
    top, left, bottom, right = box
    return x[:, :, top:bottom, left:right]


def assert_style(y: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(y.mean((2, 3)), wanted.mean((2, 3)))
    torch.testing.assert_close(y.std((2, 3)), wanted.std((2, 3)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("boxes", [(None, None), (BOX, None), (None, BOX), (BOX, BOX), ((0, 0, 2, 2), BOX)])
def test_the_reference(boxes: tuple[Box | None, Box | None]) -> None:
    x = 3 * randn(3, 4, 5, 7) + 2
    expected = inserts.crossnorm(x.double(), PARTNERS, *boxes)
    torch.testing.assert_close(cross_normalise(x, PARTNERS, *boxes).double(), expected, rtol=1e-5, atol=1e-5)


def test_the_reference_of_channels() -> None:
    x, order = 3 * randn(3, 4, 5, 7) + 2, torch.tensor([3, 1, 0, 2])
    expected = inserts.crossnorm_of_channels(x.double(), order)
    torch.testing.assert_close(cross_normalise_channels(x, order).double(), expected, rtol=1e-5, atol=1e-5)


def test_two_instances_exchange_their_style() -> None:
    x = 3 * randn(3, 4, 5, 7, dtype=torch.float64) + 2
    y = cross_normalise(x, PARTNERS)
    assert_style(y, x[PARTNERS])
    torch.testing.assert_close(y, exchange_moments(x, PARTNERS, "in"))


@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 4, 2, 3, 2), (3, 1, 1, 2)], ids=str)
def test_any_number_of_positions(shape: tuple[int, ...]) -> None:
    x = randn(*shape, dtype=torch.float64)
    torch.testing.assert_close(cross_normalise(x, PARTNERS), exchange_moments(x, PARTNERS, "in"))


def test_style_of_a_box_and_content_of_all() -> None:
    x = randn(3, 4, 5, 7, dtype=torch.float64)
    assert_style(cross_normalise(x, PARTNERS, style_box=BOX), crop(x)[PARTNERS])


def test_a_content_box_alone_is_restyled() -> None:
    x = randn(3, 4, 5, 7, dtype=torch.float64)
    for style_box, style in ((None, x), (BOX, crop(x)), ((0, 0, 2, 2), crop(x, (0, 0, 2, 2)))):
        y = cross_normalise(x, PARTNERS, style_box, BOX)
        assert_style(crop(y), style[PARTNERS])
        outside = torch.ones(5, 7, dtype=torch.bool)
        outside[1:4, 2:6] = False
        assert torch.equal(y[..., outside], x[..., outside])


def test_the_input_is_not_written_to() -> None:
    x = randn(3, 4, 5, 7)
    before = x.clone()
    cross_normalise(x, PARTNERS, BOX, BOX)
    assert torch.equal(x, before)


def test_channels_exchange_their_style() -> None:
    x = 3 * randn(3, 4, 5, 7, dtype=torch.float64) + 2
    order = torch.tensor([3, 1, 0, 2])
    assert_style(cross_normalise_channels(x, order), x[:, order])


def test_identity() -> None:
    x = randn(3, 4, 5, 7)
    torch.testing.assert_close(cross_normalise(x, torch.arange(3)), x)
    torch.testing.assert_close(cross_normalise(x, torch.arange(3), BOX, BOX), x)
    torch.testing.assert_close(cross_normalise_channels(x, torch.arange(4)), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    x = (randn(3, 4, 5, 7) + 50).to(dtype)
    for boxes in ((None, None), (BOX, None), (None, BOX), (BOX, BOX)):
        y = cross_normalise(x, PARTNERS, *boxes)
        assert y.dtype == dtype
        torch.testing.assert_close(y, cross_normalise(x.float(), PARTNERS, *boxes).to(dtype), rtol=0, atol=0)


def test_memory_format_is_kept() -> None:
    x = randn(3, 4, 5, 7).contiguous(memory_format=torch.channels_last)
    order = torch.tensor([3, 1, 0, 2])
    for y in (cross_normalise(x, PARTNERS), cross_normalise(x, PARTNERS, BOX, BOX), cross_normalise_channels(x, order)):
        assert y.is_contiguous(memory_format=torch.channels_last)


def test_gradients() -> None:
    x = randn(3, 2, 3, 4, dtype=torch.float64).requires_grad_()
    box: Box = (0, 1, 2, 4)
    assert torch.autograd.gradcheck(lambda t: cross_normalise(t, PARTNERS), x)
    assert torch.autograd.gradcheck(lambda t: cross_normalise(t, PARTNERS, (0, 0, 2, 2), box), x)
    assert torch.autograd.gradcheck(lambda t: cross_normalise_channels(t, torch.tensor([1, 0])), x)


def test_large_means() -> None:
    x = randn(3, 4, 5, 7) + 1e3
    torch.testing.assert_close(
        cross_normalise(x, PARTNERS).double(), cross_normalise(x.double(), PARTNERS), rtol=0, atol=3e-4
    )


@pytest.mark.parametrize("box", [(0, 0, 6, 2), (2, 0, 2, 3), (-1, 0, 2, 2), (0, 5, 2, 8)])
def test_a_box_outside_is_refused(box: Box) -> None:
    with pytest.raises(ValueError, match="does not lie within"):
        cross_normalise(randn(3, 4, 5, 7), PARTNERS, content_box=box)


def test_one_position_and_wrong_permutations_are_refused() -> None:
    with pytest.raises(ValueError, match="no variance"):
        cross_normalise(randn(3, 4, 1, 1), PARTNERS)
    with pytest.raises(ValueError, match="permutation of 3 examples"):
        cross_normalise(randn(3, 4, 5, 7), torch.tensor([0]))
    with pytest.raises(ValueError, match="permutation of 4 channels"):
        cross_normalise_channels(randn(3, 4, 5, 7), PARTNERS)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (5, 7), (1, 2), (2, 2), (1, 40), (224, 160)])
@pytest.mark.parametrize("beta", [0.05, 1.0, 30.0])
def test_boxes_lie_within_and_cover_more_than_a_tenth(height: int, width: int, beta: float) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        top, left, bottom, right = random_box(height, width, beta, generator)
        assert 0 <= top < bottom <= height
        assert 0 <= left < right <= width
        area = (bottom - top) * (right - left)
        assert area > 1
        assert area > 0.1 * height * width


def test_boxes_follow_the_generator_and_the_distribution() -> None:
    first, again = (
        [random_box(64, 64, 1.0, torch.Generator().manual_seed(seed)) for seed in range(400)] for _ in range(2)
    )
    assert first == again
    shares = torch.tensor([(b - t) * (r - left) / 64**2 for t, left, b, r in first])
    assert abs(shares.mean().item() - 0.55) < 0.05  # uniform from 0.1 to 1
    assert len(set(first)) > 300


def test_no_box_is_possible() -> None:
    for height, width, beta in ((1, 1, 1.0), (4, 4, 0.0)):
        with pytest.raises(ValueError, match="No box"):
            random_box(height, width, beta)
