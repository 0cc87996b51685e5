"""Noise of a single frequency and low-pass filters, against Fourier transforms that are written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from surgeon.conditions.base import ask
from surgeon.conditions.fourier import FourierConfig, frequencies, mirrored
from surgeon.conditions.kernels.spectrum import basis_image, cycles, low_frequencies
from surgeon.core.errors import SurgeonError
from tests.reference import spectrum

SIZES = [(8, 8), (32, 32), (7, 9), (6, 11)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("row", "column"), [(0, 0), (0.5, -0.25), (1, 1), (-1, 0.5), (0, 1)])
def test_a_basis_image_has_one_frequency(size: tuple[int, int], row: float, column: float) -> None:
    ours = basis_image(*size, row, column).numpy()
    expected = spectrum.basis_image(*size, cycles(row, size[0]), cycles(column, size[1]))
    np.testing.assert_allclose(ours, expected, atol=1e-12)
    assert np.count_nonzero(np.abs(spectrum.transform(ours)) > 1e-9) <= 2
    assert np.linalg.norm(ours) == pytest.approx(1)


def test_the_noise_is_a_signed_wave_of_the_norm_that_was_asked_for() -> None:
    (asked,) = ask(["fourier:row=0.5,column=-0.25,norm=2"])
    pixels, indices = torch.full((64, 3, 32, 32), 0.5), torch.arange(64)
    changed = asked.apply(pixels, torch.zeros(64, dtype=torch.int64), indices) - pixels
    wave = spectrum.basis_image(32, 32, 8, -4) * 2
    signs = torch.einsum("nchw,hw->nc", changed.double(), torch.from_numpy(wave)) / 4
    np.testing.assert_allclose(changed.numpy(), signs.sign()[..., None, None].numpy() * wave, atol=1e-6)
    np.testing.assert_allclose(changed.norm(dim=(2, 3)).numpy(), 2, rtol=1e-5)
    assert {tuple(row) for row in signs.sign().int().tolist()} == {
        (a, b, c) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)
    }  # drawn for each channel of each image
    again = asked.apply(pixels[:5], torch.zeros(5, dtype=torch.int64), indices[:5]) - pixels[:5]
    assert torch.equal(again, changed[:5])  # by the image's index alone


@pytest.mark.parametrize(("side", "norm"), [(32, 8), (8, 2), (224, 56)])
def test_the_usual_norm_is_eight_at_32_pixels_and_grows_with_the_side(side: int, norm: float) -> None:
    (usual,), (given,) = ask(["fourier:row=0.25,column=0.5"]), ask([f"fourier:row=0.25,column=0.5,norm={norm}"])
    pixels, zeros = torch.full((2, 1, side, side), 0.5), torch.zeros(2, dtype=torch.int64)
    ours, theirs = ((each.apply(pixels, zeros, zeros) - 0.5).abs() for each in (usual, given))
    torch.testing.assert_close(ours, theirs)  # the absolute values: the signs are drawn for each condition by itself
    assert ours.max() == pytest.approx(2**0.5 / 4, rel=1e-5)  # the same contrast at every size


def test_what_a_picture_cannot_show_is_cut_off() -> None:
    (asked,) = ask(["fourier:row=0,column=0.5,norm=100"])
    changed = asked.apply(torch.rand(2, 3, 8, 8), torch.zeros(2), torch.arange(2))
    assert changed.min() == 0
    assert changed.max() == 1


def test_a_map_has_each_frequency_or_its_mirror_image() -> None:
    names = [each.name for each in ask(["fourier:grid=5"])]
    assert len(names) == 13  # of 25, the centre is its own mirror image
    each_way = frequencies(FourierConfig(grid=5))
    assert each_way == [-1, -0.5, 0, 0.5, 1]
    for row in each_way:
        for column in each_way:
            there, across = mirrored(row, column)
            assert f"fourier:row={there},column={across}" in names
            torch.testing.assert_close(basis_image(8, 8, row, column), basis_image(8, 8, there, across))
    assert all(each.name.endswith(",norm=4.0") for each in ask(["fourier:grid=3,highest=0.25,norm=4"]))
    assert len(ask(["fourier"])) == 41


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.6, 0.875, 1.0])
def test_a_low_pass_keeps_a_centred_window_of_the_spectrum(size: tuple[int, int], share: float) -> None:
    pixels = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours = low_frequencies(pixels, share)
    rows, columns = (max(round(share * length), 1) for length in size)
    for image, filtered in zip(pixels.flatten(0, 1).numpy(), ours.flatten(0, 1).numpy(), strict=True):
        np.testing.assert_allclose(filtered, spectrum.low_pass(image, rows, columns), atol=1e-12)
    if share == 1:
        torch.testing.assert_close(ours, pixels)


def test_a_low_pass_in_float32_is_that_of_float64() -> None:
    (asked,) = ask(["low-pass:bandwidth=0.25"])
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    ours = asked.apply(pixels, torch.zeros(2), torch.arange(2))
    assert ours.dtype == torch.float32
    expected = np.stack([spectrum.low_pass(image, 8, 8) for image in pixels.flatten(0, 1).double().numpy()])
    np.testing.assert_allclose(ours.flatten(0, 1).numpy(), expected.clip(0, 1), atol=1e-6)
    assert [each.name for each in ask(["low-pass:points=4"])] == [
        "low-pass:bandwidth=0.25", "low-pass:bandwidth=0.5", "low-pass:bandwidth=0.75",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("fourier:row=0.5", "cannot take a row without a column"),
        ("fourier:column=0.5", "cannot take a column without a row"),
        ("fourier:row=2,column=0", "row='2': Input should be less than or equal to 1"),
        ("fourier:grid=8", "grid=8: an even number has no centre"),
        ("fourier:norm=inf", "norm='inf'"),
        ("low-pass:bandwidth=0", "bandwidth='0': Input should be greater than 0"),
        ("low-pass:points=1", "points='1'"),
    ],
)
def test_wrong_options_get_a_sentence(spec: str, says: str) -> None:
    with pytest.raises(SurgeonError, match="cannot take") as caught:
        ask([spec])
    assert says in caught.value.message
