"""The arithmetic of corruptions against formulas written out in float64, with compiled kernels and without."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scipy import ndimage, stats

from surgeon.conditions.base import ask
from surgeon.conditions.kernels import bending, colours, drawing, filtering, ice, plasma, resampling, shuffling
from surgeon.layers import native
from surgeon.layers.native import corrupting


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "compiled" and not native.available():
        pytest.skip("the kernels are not compiled here")
    if request.param == "numpy":
        monkeypatch.setattr(corrupting, "_library", lambda: None)
    return request.param


def picture(height: int = 23, width: int = 31, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def floats(*shape: int) -> np.ndarray:
    return picture(*shape).astype(np.float32)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


@pytest.mark.parametrize(
    ("sigma", "truncate", "border", "mode"), [(1.5, 4.0, "edge", "nearest"), (2.24, 3.0, "reflect", "reflect")]
)
def test_gaussian_blur(sigma: float, truncate: float, border: str, mode: str) -> None:
    image = floats()
    expected = ndimage.gaussian_filter(image.astype(np.float64), (sigma, sigma, 0), truncate=truncate, mode=mode)
    assert np.abs(filtering.gaussian_blur(image, sigma, truncate, border) - expected).max() < 1e-3


@pytest.mark.parametrize(("radius", "alias_blur"), [(0.4, 0.5), (1.5, 0.1), (4, 0.5), (10, 0.5)])
def test_disc_is_a_disc(radius: float, alias_blur: float) -> None:
    offsets, weights = filtering.disc(radius, alias_blur)
    distance = np.hypot(*offsets.T)
    assert weights.sum() == pytest.approx(1, abs=0.012)  # a large disc is 1% too bright, in the published code as well
    assert weights[distance > radius + 2].sum() < 1e-3
    image = floats(41, 47, 3)
    kernel = np.zeros((51, 51))
    kernel[tuple(offsets.T + 25)] = weights
    expected = ndimage.correlate(image.astype(np.float64), kernel[..., None], mode="mirror")
    assert np.abs(filtering.apply_filter(image, offsets, weights, "mirror") - expected).max() < 1e-3


def test_motion_follows_its_angle_and_fades() -> None:
    image = np.zeros((21, 21, 1), np.float32)
    image[10, 10] = 1
    found = filtering.motion_blur(image, 4, 2.0, 0.0)[..., 0]
    weights = np.exp(-(np.arange(9) ** 2) / 8)
    assert np.allclose(found[10, 10:1:-1], weights / weights.sum(), atol=1e-6)
    assert found.sum() == pytest.approx(1, abs=1e-6)
    diagonal = filtering.motion_blur(image, 4, 2.0, 45.0)[..., 0]
    assert np.count_nonzero(diagonal) == np.count_nonzero(np.diag(diagonal)) > 3


def test_a_trail_ends_at_the_border_of_a_small_image() -> None:
    offsets, weights = filtering.motion(10, 3.0, 0.0, (5, 5))
    assert (len(offsets), len(weights)) == (5, 5)


@pytest.mark.parametrize("centred", [True, False])
def test_zooms_are_those_of_scipy(centred: bool) -> None:
    image = floats(32, 40, 3)
    zooms = (1.0, 1.07, 1.13, 1.25)
    expected = np.zeros(image.shape)
    for zoom in zooms:
        sides = [resampling.cut_side(side, zoom) for side in image.shape[:2]]
        starts = [(side - part) // 2 for side, part in zip(image.shape[:2], sides, strict=True)]
        middle = image[starts[0] : starts[0] + sides[0], starts[1] : starts[1] + sides[1]].astype(np.float64)
        large = ndimage.zoom(middle, (zoom, zoom, 1), order=1)
        trims = [(now - side) // 2 * centred for now, side in zip(large.shape[:2], image.shape[:2], strict=True)]
        expected += large[trims[0] : trims[0] + 32, trims[1] : trims[1] + 40]
    assert np.abs(resampling.sum_of_zooms(image, zooms, centred) - expected).max() < 2e-3


def test_enlarging_is_that_of_scipy() -> None:
    image = floats(13, 17, 1)[..., 0]
    expected = ndimage.zoom(image.astype(np.float64), 2.5, order=1)[:30, :40]
    assert np.abs(resampling.enlarge(image, 2.5, (30, 40)) - expected).max() < 1e-3


@pytest.mark.parametrize(("fold", "mode"), [(resampling.reflect, "reflect"), (resampling.mirror, "mirror")])
def test_sampling_is_that_of_scipy(fold: object, mode: str) -> None:
    image = floats(20, 24, 1)
    draw = np.random.default_rng(1)
    rows, columns = (draw.uniform(-9, side + 9, (20, 24)).astype(np.float32) for side in (20, 24))
    expected = ndimage.map_coordinates(image[..., 0].astype(np.float64), (rows, columns), order=1, mode=mode)
    found = resampling.sample(image, fold(rows, 20), fold(columns, 24))[..., 0]  # type: ignore[operator]
    assert np.abs(found - expected).max() < 1e-2


def test_no_displacement_and_no_slant_change_nothing() -> None:
    image = floats()
    assert np.allclose(bending.slanted(generator(), image, 0.0), image, atol=0.01)
    assert np.allclose(bending.displaced(generator(), image, 0.0, (2.0, 2.0)), image)


def test_shuffling_copies_near_pixels_in_order() -> None:
    image, delta, rounds = picture(9, 11, 3), 2, 2
    draws = generator(3).integers(-delta, delta, size=(rounds, 5, 7, 2), dtype=np.int8)
    expected = image.copy()
    for i in range(rounds):
        for r, h in enumerate(range(9 - delta, delta, -1)):
            for c, w in enumerate(range(11 - delta, delta, -1)):
                right, down = draws[i, r, c]
                expected[h, w] = expected[h + down, w + right]
    assert np.array_equal(shuffling.shuffle(generator(3), image, delta, rounds), expected)


def test_normals_are_normal() -> None:
    drawn = drawing.normals(generator(), (400_000,), 2.0) / 2
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert abs(stats.kurtosis(drawn)) < 0.05
    assert 4.2 < np.abs(drawn).max() < 6.5
    assert (drawn > 3.5).mean() == pytest.approx(stats.norm.sf(3.5), rel=0.3)


@pytest.mark.parametrize("photons", [3, 60, 500])
def test_photons_are_poisson(photons: float) -> None:
    level = 140
    found = drawing.poisson(generator(), np.full((300, 300, 1), level, np.uint8), photons)
    counts = np.arange(5 * photons + 50)
    bytes_of = np.floor(np.minimum(counts / photons, 1) * 255)
    probabilities = stats.poisson.pmf(counts, level / 255 * photons)
    mean = (probabilities * bytes_of).sum()
    deviation = np.sqrt((probabilities * (bytes_of - mean) ** 2).sum())
    assert found.mean() == pytest.approx(mean, abs=4 * deviation / 300)
    assert found.std() == pytest.approx(deviation, rel=0.02)
    assert not drawing.poisson(generator(), np.zeros((5, 5, 1), np.uint8), photons).any()


@pytest.mark.parametrize("added", [0.05, 0.3])
def test_brighter_as_in_hsv(added: float) -> None:
    import colorsys

    image = picture(6, 6)
    image[0, 0] = 0
    for pixel, found in zip(image.reshape(-1, 3), colours.brighten(image, added).reshape(-1, 3), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*(pixel / 255))
        expected = np.array(colorsys.hsv_to_rgb(hue, saturation, min(value + added, 1))) * 255
        assert np.allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize(("factor", "added"), [(0.3, 0.0), (2.0, 0.1), (20.0, 0.2)])
def test_saturated_as_in_hsv(factor: float, added: float) -> None:
    import colorsys

    image = picture(6, 6)
    image[0, 0], image[0, 1] = 0, 90
    for pixel, found in zip(image.reshape(-1, 3), colours.saturate(image, factor, added).reshape(-1, 3), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*(pixel / 255))
        expected = np.array(colorsys.hsv_to_rgb(hue, min(saturation * factor + added, 1), value)) * 255
        assert np.allclose(found, expected, atol=2e-2)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (30, 50), (2, 2)])
def test_plasma_is_rougher_the_slower_it_decays(height: int, width: int) -> None:
    maps = [plasma.plasma(generator(), height, width, decay) for decay in (1.5, 3.0)]
    for each in maps:
        assert each.shape == (height, width)
        assert each.min() >= 0
        assert each.max() <= 1
    if height > 2:
        rough, smooth = (np.abs(np.diff(each)).mean() / each.std() for each in maps)
        assert rough > 1.5 * smooth


def test_ice_is_as_bright_and_as_varied_as_stated() -> None:
    parts = np.stack([ice.crystals(generator(seed), 32, 32, 1.0, True) for seed in range(200)])
    means = parts.mean((1, 2, 3))
    assert means.mean() == pytest.approx(np.mean(ice.BRIGHTNESS), abs=10)
    assert 30 < means.std() < 45
    assert parts.mean(-1).std((1, 2)).mean() == pytest.approx(np.mean(ice.DEVIATION), rel=0.2)


@pytest.mark.parametrize("name", ["glass-blur", "snow", "shot-noise", "elastic-transform", "zoom-blur"])
def test_compiled_or_not_the_images_are_the_same(name: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels == "numpy":
        pytest.skip("it compares both")
    import torch

    images = torch.from_numpy(picture(32, 32)).permute(2, 0, 1)[None] / 255
    (asked,) = ask([f"{name}:severity=3"])
    number = torch.arange(1)
    compiled = asked.apply(images, number, number)
    monkeypatch.setattr(corrupting, "_library", lambda: None)
    difference = (asked.apply(images, number, number) - compiled).abs() * 255
    assert float(difference.max()) <= 1.001  # where a sum in another order falls on another side of a whole number
    assert float((difference > 0.5).float().mean()) < 0.01
