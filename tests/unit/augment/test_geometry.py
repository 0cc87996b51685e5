"""Crops: of evaluation and of training, for pictures of every shape."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.functional import pil_to_tensor

from surgeon.augment.base import ImageOperation, augments
from surgeon.augment.geometry import evaluation_geometry, fill_colour
from surgeon.augment.pipeline import build_augmentation
from surgeon.core.errors import SurgeonError
from surgeon.data.seeding import seeded
from surgeon.data.transforms import Transform, normalise
from surgeon.models.origin import Preprocessing

SHAPES = [(32, 32), (50, 30), (30, 50), (1, 1), (1, 40), (40, 1), (300, 200)]
SIZES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 32, 48), (3, 224, 224), (3, 128, 96)]


def preprocessing(size: tuple[int, ...] = (3, 32, 32), **changes: object) -> Preprocessing:
    channels = size[0]
    stated = Preprocessing(input_size=size, mean=(0.4, 0.5, 0.6)[:channels], std=(0.2,) * channels, crop_pct=0.9)
    return stated.model_copy(update=changes)


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def standard(stated: Preprocessing, **options: object) -> ImageOperation:
    augment = augments["standard"]
    operation: ImageOperation = augment.build(augment.configure(options), stated)
    return operation


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1"])
def test_every_picture_becomes_one_of_the_network_s_size(
    size: tuple[int, ...], shape: tuple[int, int], mode: str
) -> None:
    stated, image = preprocessing(size), picture(*shape, mode)
    for geometry in (evaluation_geometry(stated), standard(stated)):
        result = geometry(image)
        assert (result.size, result.mode) == (size[:0:-1], "L" if size[0] == 1 else "RGB")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_evaluation_is_what_evaluation_does(size: tuple[int, ...], shape: tuple[int, int]) -> None:
    stated, image = preprocessing(size), picture(*shape)
    assert torch.equal(pil_to_tensor(evaluation_geometry(stated)(image)), Transform(stated)(image))


def test_without_a_crop_of_its_own_a_chain_takes_that_of_evaluation() -> None:
    stated = preprocessing()
    assert build_augmentation(["gaussian-noise"], stated).geometry is evaluation_geometry(stated)


def test_small_pictures_are_shifted_within_a_border_that_is_zero_after_normalisation() -> None:
    stated = preprocessing(crop_pct=1.0)
    operation, image = standard(stated, flip=False), picture(32, 32)
    whole = pil_to_tensor(image)
    colour = torch.tensor(fill_colour(stated), dtype=torch.uint8).view(3, 1, 1)
    padded = colour.expand(3, 40, 40).clone()
    padded[:, 4:36, 4:36] = whole
    crops = {(y, x): padded[:, y : y + 32, x : x + 32] for y in range(9) for x in range(9)}
    seen = set()
    for index in range(200):
        with seeded(index):
            result = pil_to_tensor(operation(image))
        (place,) = [place for place, crop in crops.items() if torch.equal(crop, result)]
        seen.add(place)
    assert len(seen) > 60
    assert normalise(colour[None], stated).abs().max() < 0.5 / 255 / 0.2 + 1e-6


@pytest.mark.parametrize("size", [(3, 32, 32), (3, 96, 96)])
def test_flips_every_other_picture_unless_told_not_to(size: tuple[int, ...]) -> None:
    # Left half black, right half white: a crop shows which side is which.
    pixels = np.zeros((*size[1:], 3), dtype=np.uint8)
    pixels[:, size[2] // 2 :] = 255
    image, stated = Image.fromarray(pixels), preprocessing(size, crop_pct=1.0)

    def flipped(operation: ImageOperation) -> int:
        number = 0
        for index in range(100):
            with seeded(index):
                result = np.asarray(operation(image)).astype(float)
            number += result[:, :8].mean() > result[:, -8:].mean()
        return number

    assert 30 < flipped(standard(stated, scale=0.9)) < 70
    assert flipped(standard(stated, scale=0.9, flip="false")) == 0


def test_scale_bounds_the_share_of_the_picture() -> None:
    # A picture whose colour is its place: what a crop keeps can be read off it.
    ramp = np.tile(np.linspace(0, 255, 200).round().astype(np.uint8), (200, 1))
    image = Image.fromarray(np.stack([ramp, ramp.T, ramp], axis=-1))

    def smallest_share(**options: object) -> float:
        operation, shares = standard(preprocessing((3, 96, 96)), flip=False, **options), []
        for index in range(60):
            with seeded(index):
                result = np.asarray(operation(image)).astype(float) / 255
            shares.append(float(np.ptp(result[..., 0]) * np.ptp(result[..., 1])))
        return min(shares)

    assert smallest_share() < 0.2
    assert smallest_share(scale=0.6) > 0.5


def test_refuses_what_it_cannot_do() -> None:
    with pytest.raises(SurgeonError, match="Only one augmentation can choose the crop"):
        build_augmentation(["standard", "strong"], preprocessing())
    with pytest.raises(SurgeonError, match="scale"):
        standard(preprocessing(), scale=0)
    with pytest.raises(SurgeonError, match=r"\(4, 32, 32\)"):
        build_augmentation(["standard"], preprocessing((4, 32, 32), mean=(0.5,) * 4, std=(0.5,) * 4))
