"""What a network is given, to look at: pictures as they are, spectrograms in colours; large, or as thumbnails."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from surgeon.measuring.conditions import pixels_of
from surgeon.measuring.preparation import PreparedNetwork, batches_for
from surgeon.models.origin import Preprocessing
from surgeon.report.gallery import Scales
from surgeon.report.spectrogram import axes_of, coloured

THUMBNAIL = 112
"""The longer side, in pixels; smaller pictures stay as they are."""


def thumbnails(network: PreparedNetwork, indices: npt.NDArray[np.int64]) -> list[bytes]:
    """Small PNGs of images of the network's set, as the network sees them, in the order of the indices."""
    found: dict[int, bytes] = {}
    for batch in batches_for([network.with_one_view()], network.image_set.subset(indices)):
        if batch.images.shape[1] not in (1, 3):
            return []
        for number, pixels in zip(batch.indices.tolist(), visible(batch.images, network.preprocessing), strict=True):
            picture = Image.fromarray(pixels)
            picture.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
            file = BytesIO()
            picture.quantize(64).save(file, "PNG")
            found[number] = file.getvalue()
    return [found.get(number, b"") for number in range(len(indices))]


def visible(images: Tensor, preprocessing: Preprocessing) -> list[npt.NDArray[np.uint8]]:
    """Normalised images as bytes (H, W, 3); what is darker than black or brighter than white is cut off."""
    if preprocessing.sound is not None:
        return [coloured(image[0].cpu().numpy()) for image in images]
    pixels = pixels_of(images, preprocessing).clamp(0, 1).mul(255).round().to(torch.uint8)
    return [image.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy() for image in pixels.cpu()]


def axes_for(preprocessing: Preprocessing) -> Scales | None:
    """The axes of what is visible, if it has some."""
    return None if preprocessing.sound is None else axes_of(preprocessing.sound)
