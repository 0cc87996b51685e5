"""From a decoded sample to what a network sees: pictures by timm's own evaluation geometry, clips as spectrograms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from surgeon.core.errors import SurgeonError
from surgeon.data.clips import ClipTransform
from surgeon.data.masks import Mask
from surgeon.data.mel import log_mel, resized
from surgeon.models.origin import Preprocessing

MODES = {1: "L", 3: "RGB"}


class Transform:
    """Resize, crop and convert one image to bytes (C, H, W), channels last in memory."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        from timm.data.transforms_factory import create_transform

        channels = preprocessing.input_size[0]
        if len(preprocessing.input_size) != 3 or channels not in MODES:
            raise SurgeonError(
                f"Images cannot be turned into inputs of size {preprocessing.input_size}.",
                "The network has to take grey or colour images: (1, height, width) or (3, height, width).",
            )
        self.mode = MODES[channels]
        self.geometry = create_transform(
            preprocessing.input_size,
            is_training=False,
            interpolation=preprocessing.interpolation,
            crop_pct=preprocessing.crop_pct,
            normalize=False,
        )

    def picture(self, image: Image.Image) -> Image.Image:
        """The same, still a picture: all but the last step, which makes a tensor of it."""
        if image.mode != self.mode:
            image = image.convert(self.mode)
        for step in self.geometry.transforms[:-1]:
            image = step(image)
        return image

    def __call__(self, image: Image.Image) -> Tensor:
        if image.mode != self.mode:
            image = image.convert(self.mode)
        pixels: Tensor = self.geometry(image)
        return pixels

    def leaves_alone(self, size: tuple[int, int, int]) -> bool:
        """Whether the pixels of pictures of a size (C, H, W) come out as they are."""
        from torchvision.transforms.functional import to_pil_image

        noise = torch.from_numpy(np.random.default_rng(0).integers(0, 256, size, np.uint8))
        same: bool = torch.equal(self(to_pil_image(noise)), noise)
        return same


class WholeImage(Transform):
    """The whole image resized to the input size, whatever its proportions: every pixel has its place in a mask."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        from torchvision.transforms import Compose, InterpolationMode, PILToTensor, Resize

        super().__init__(preprocessing)
        how = InterpolationMode(preprocessing.interpolation)
        self.geometry = Compose([Resize(preprocessing.input_size[-2:], how), PILToTensor()])


def resized_mask(mask: Mask, size: tuple[int, int]) -> Tensor:
    """A mask at another (height, width), each pixel that of the nearest place."""
    classes = torch.from_numpy(mask)
    if tuple(classes.shape) == size:
        return classes
    places = (
        ((torch.arange(new) + 0.5) * (old / new)).floor().long() for new, old in zip(size, classes.shape, strict=True)
    )
    rows, columns = places
    return classes[rows[:, None], columns]


def transform_for(preprocessing: Preprocessing) -> Transform | ClipTransform:
    """What is done to each sample by itself: bytes of pixels come out, or a waveform."""
    return Transform(preprocessing) if preprocessing.sound is None else ClipTransform(preprocessing.sound)


MakeInput = Callable[[Preprocessing], Transform | ClipTransform]
"""Makes what is done to each sample by itself."""


def normalise(batch: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Bytes (N, C, H, W) as the floats the network was trained on, in the same memory format.

    Waveforms (N, 1, 1, samples) become spectrograms first.
    """
    mean, std = (
        torch.tensor(values, device=batch.device).view(-1, 1, 1) for values in (preprocessing.mean, preprocessing.std)
    )
    if preprocessing.sound is not None:
        spectrograms = log_mel(batch[:, 0, 0], preprocessing.sound)[:, None]
        return resized(spectrograms, preprocessing.input_size[1:]).sub_(mean).div_(std)
    # The order of ToTensor and Normalize, so that the result is theirs to the last bit.
    values = batch.float()
    if values.is_contiguous(memory_format=torch.channels_last):
        # Line by line, in place: with the three channels innermost, torch would compute three numbers at a time.
        lines, width = values.permute(0, 2, 3, 1).flatten(2), values.shape[-1]
        lines.div_(255).sub_(mean.flatten().repeat(width)).div_(std.flatten().repeat(width))
        return values
    return values.div_(255).sub_(mean).div_(std)
