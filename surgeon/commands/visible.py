"""What a network is given, to look at: pictures as they are, spectrograms in colours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from surgeon.measuring.conditions import pixels_of
from surgeon.models.origin import Preprocessing
from surgeon.report.gallery import Scales
from surgeon.report.spectrogram import axes_of, coloured


def visible(images: Tensor, preprocessing: Preprocessing) -> list[npt.NDArray[np.uint8]]:
    """Normalised images as bytes (H, W, 3); what is darker than black or brighter than white is cut off."""
    if preprocessing.sound is not None:
        return [coloured(image[0].cpu().numpy()) for image in images]
    pixels = pixels_of(images, preprocessing).clamp(0, 1).mul(255).round().to(torch.uint8)
    return [image.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy() for image in pixels.cpu()]


def axes_for(preprocessing: Preprocessing) -> Scales | None:
    """The axes of what is visible, if it has some."""
    return None if preprocessing.sound is None else axes_of(preprocessing.sound)
