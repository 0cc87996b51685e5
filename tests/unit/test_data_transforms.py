"""The geometry and the numbers of timm's evaluation transform."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform

from surgeon.core.errors import SurgeonError
from surgeon.data.transforms import Transform, normalise
from surgeon.models.origin import Preprocessing

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def random_image(width: int, height: int, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize("size", [(300, 200), (224, 224), (50, 400), (100, 100), (257, 256)])
@pytest.mark.parametrize(("interpolation", "crop_pct"), [("bicubic", 0.875), ("bilinear", 1.0), ("lanczos", 0.95)])
def test_pixels_and_floats_are_those_of_timm(size: tuple[int, int], interpolation: str, crop_pct: float) -> None:
    preprocessing = Preprocessing(input_size=(3, 224, 224), interpolation=interpolation, crop_pct=crop_pct, **IMAGENET)
    reference = create_transform((3, 224, 224), interpolation=interpolation, crop_pct=crop_pct, **IMAGENET)
    image = random_image(*size)
    pixels = Transform(preprocessing)(image)
    assert pixels.dtype == torch.uint8
    assert pixels.shape == (3, 224, 224)
    assert torch.equal(normalise(pixels[None], preprocessing)[0], reference(image))


def test_an_image_of_the_right_size_is_not_resampled() -> None:
    preprocessing = Preprocessing(input_size=(3, 32, 32), interpolation="bicubic", **IMAGENET)
    image = random_image(32, 32)
    assert np.array_equal(Transform(preprocessing)(image).permute(1, 2, 0).numpy(), np.array(image))


def test_an_image_smaller_than_the_crop_is_padded() -> None:
    preprocessing = Preprocessing(input_size=(3, 40, 80), crop_pct=1.0, **IMAGENET)
    assert Transform(preprocessing)(random_image(20, 20)).shape == (3, 40, 80)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_becomes_what_the_network_takes(mode: str, channels: int) -> None:
    preprocessing = Preprocessing(input_size=(channels, 8, 8), mean=(0.5,) * channels, std=(0.5,) * channels)
    pixels = Transform(preprocessing)(Image.new(mode, (8, 8)))
    assert normalise(pixels[None], preprocessing).shape == (1, channels, 8, 8)


def test_an_odd_number_of_channels_is_refused() -> None:
    with pytest.raises(SurgeonError, match=r"\(12, 8, 8\)"):
        Transform(Preprocessing(input_size=(12, 8, 8), mean=(0.5,) * 12, std=(0.5,) * 12))


def test_normalising_keeps_the_memory_format() -> None:
    preprocessing = Preprocessing(input_size=(3, 8, 8), **IMAGENET)
    batch = torch.zeros(2, 3, 8, 8, dtype=torch.uint8).to(memory_format=torch.channels_last)
    assert normalise(batch, preprocessing).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("channels", [1, 3])
def test_normalising_is_three_operations_to_the_last_bit(memory: torch.memory_format, channels: int) -> None:
    mean, std = IMAGENET["mean"][:channels], IMAGENET["std"][:channels]
    batch = torch.arange(256, dtype=torch.uint8).repeat(2 * channels).view(2, channels, 8, 32)
    batch = batch.contiguous(memory_format=memory)
    found = normalise(batch, Preprocessing(input_size=(channels, 8, 32), mean=mean, std=std))
    expected = (batch.float() / 255 - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)
    assert torch.equal(found, expected)
    assert found.stride() == batch.stride()
    assert batch.flatten()[255] == 255
