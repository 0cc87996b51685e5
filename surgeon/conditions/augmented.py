"""Every augmentation of single images, as a condition: `augment-randaugment:magnitude=5`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.base import Augment, AugmentConfig, Kind, augments
from surgeon.conditions.base import Condition, Family, Seen, as_bytes, conditions
from surgeon.core.errors import SurgeonError
from surgeon.core.media import Medium

if TYPE_CHECKING:
    from torch import Tensor

PREFIX = "augment-"
"""Some augmentations are called as a corruption is."""


def _register(augment: Augment) -> None:
    def apply(config: AugmentConfig, seen: Seen) -> Tensor:
        return _augmented(augment, config, seen)

    name = PREFIX + augment.name
    summary = augment.summary
    moves = not augment.keeps_places
    conditions.register(name)(
        Condition(name, summary, augment.paper, augment.config, Family.AUGMENTATION, apply, moves=moves)
    )


def _augmented(augment: Augment, config: AugmentConfig, seen: Seen) -> Tensor:
    import torch
    from torchvision.transforms.functional import pil_to_tensor, to_pil_image

    from surgeon.augment.pipeline import build_augmentation
    from surgeon.data.seeding import seeded
    from surgeon.models.origin import Preprocessing

    channels, height, width = seen.pixels.shape[1:]
    # Batch augmentations expect images whose mean is 0, and get images from -1 to 1.
    half = (0.5,) * channels
    preprocessing = Preprocessing(input_size=(channels, height, width), mean=half, std=half)
    spec = augment.with_options(config)
    augmentation = build_augmentation([spec], preprocessing)
    if augmentation.mixing:
        raise SurgeonError(f"{spec} mixes images with each other: it is not a condition for single images.")
    found = []
    for pixels, seed in zip(as_bytes(seen.pixels), seen.seeds(), strict=True):
        image = to_pil_image(pixels)
        with seeded(seed):
            image = augmentation.geometry(image)
            for operation in augmentation.image:
                image = operation(image)
        batch = pil_to_tensor(image)[None].float().div_(127.5).sub_(1)
        target = torch.ones(1, 1)
        batch, _ = augmentation.of_batch(batch, target, torch.Generator().manual_seed(seed))
        found.append(batch)
    return torch.cat(found).add_(1).div_(2).clamp_(0, 1).to(seen.pixels.device)


for _name in augments:
    if augments[_name].kind is not Kind.MIX and Medium.IMAGE in augments[_name].media:
        _register(augments[_name])
