"""Decoded pictures, augmented: all that is random depends on nothing but a seed and the numbers of the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from surgeon.augment.pipeline import Augmentation

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from surgeon.models.origin import Preprocessing


def augment_pictures(
    augmentation: Augmentation,
    pictures: Sequence[Image.Image],
    numbers: Sequence[int],
    targets: Tensor,
    preprocessing: Preprocessing,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Normalised images and soft targets; `numbers` are the pictures' own, which with the seed decide what is drawn."""
    images = augment_singly(augmentation, pictures, numbers, preprocessing, seed)
    return augment_together(augmentation, images, numbers, targets, seed)


def augment_singly(
    augmentation: Augmentation,
    pictures: Sequence[Image.Image],
    numbers: Sequence[int],
    preprocessing: Preprocessing,
    seed: int,
) -> Tensor:
    """Each picture after its crop and what is done to single images, normalised, channels last in memory."""
    import torch
    from torchvision.transforms.functional import pil_to_tensor

    from surgeon.data.seeding import seeded
    from surgeon.data.transforms import normalise

    pixels: list[Tensor] = []
    for picture, number in zip(pictures, numbers, strict=True):
        with seeded(seed, number):
            image = augmentation.geometry(picture)
            for operation in augmentation.image:
                image = operation(image)
        pixels.append(pil_to_tensor(image))
    return normalise(torch.stack(pixels).contiguous(memory_format=torch.channels_last), preprocessing)


def augment_together(
    augmentation: Augmentation, images: Tensor, numbers: Sequence[int], targets: Tensor, seed: int
) -> tuple[Tensor, Tensor]:
    """What is done to the batch as a whole."""
    import torch

    from surgeon.data.seeding import seed_from

    return augmentation.of_batch(images, targets, torch.Generator().manual_seed(seed_from(seed, *numbers)))
