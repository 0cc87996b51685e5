"""Predicted masks as files: palette PNGs whose numbers are classes and whose colours tell them apart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from surgeon.core.atomic import staged
from surgeon.core.errors import SurgeonError
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.data.images import ImageSet
from surgeon.data.transforms import resized_mask
from surgeon.measuring.engine import measure
from surgeon.measuring.preparation import PreparedNetwork
from surgeon.report.masks import palette
from surgeon.results.prediction import ClassShare, PredictedMask

LEGEND = "classes.json"
MOST_CLASSES = 256
"""Colours of a palette."""
MOST_SCORES = 1 << 27
"""Scores of an image that are resized; of larger images, masks are."""


def mask_files(images: ImageSet) -> list[str]:
    """A file for the mask of each image, called as it is."""
    stems = [PurePath(images.identity(index)).stem or "image" for index in range(len(images))]
    seen: Counter[str] = Counter()
    files = []
    for stem in stems:
        seen[stem] += 1
        files.append(f"{stem}.png" if seen[stem] == 1 else f"{stem}-{seen[stem]}.png")
    return files


@dataclass
class WrittenMasks:
    """Writes the mask of each image, of the image's own size, and keeps the share of each class."""

    folder: Path
    files: Sequence[str]
    images: ImageSet
    written: list[str]
    """Files that are there."""
    shares: dict[int, list[float]] = field(default_factory=dict)
    confidence: dict[int, float] = field(default_factory=dict)

    def update(self, logits: Tensor, labels: Tensor, indices: Any) -> None:  # noqa: ARG002
        """Take in the predictions of a batch."""
        for of_image, index in zip(logits, indices.tolist(), strict=True):
            with Image.open(BytesIO(self.images.encoded.read(int(self.images.positions[index])))) as picture:
                width, height = picture.size
            if bool(of_image.isnan().any()):
                self.shares[index], self.confidence[index] = [], 0.0
                continue
            mask = _mask_of_size(of_image, height, width)
            drawn = Image.fromarray(mask)
            drawn.putpalette(palette(len(of_image)).tobytes())
            drawn.save(self.folder / self.files[index])
            self.written.append(self.files[index])
            self.shares[index] = (np.bincount(mask.ravel(), minlength=len(of_image)) / mask.size).tolist()
            self.confidence[index] = float(of_image.softmax(0).amax(0).mean())

    def merge(self, other: WrittenMasks) -> WrittenMasks:
        """Both, as if one process had seen all images."""
        shares, confidence = self.shares | other.shares, self.confidence | other.confidence
        return WrittenMasks(self.folder, self.files, self.images, self.written, shares, confidence)

    def __len__(self) -> int:
        return len(self.shares)


def _mask_of_size(logits: Tensor, height: int, width: int) -> NDArray[np.uint8]:
    """The most probable class of each pixel of the image itself."""
    if len(logits) * height * width <= MOST_SCORES:
        logits = F.interpolate(logits[None], size=[height, width], mode="bilinear", align_corners=False)[0]
    mask = resized_mask(logits.argmax(0).numpy(), (height, width))
    return mask.numpy().astype(np.uint8)


def write_masks(
    prepared: PreparedNetwork, names: Sequence[str], folder: Path, processes: Processes, progress: Progress
) -> dict[int, PredictedMask]:
    """The masks of all images in a folder, all or none, with the colours of the classes; what is told, by image."""
    if len(names) > MOST_CLASSES:
        raise SurgeonError(f"A picture has up to {MOST_CLASSES} colours, and the network {len(names):,} classes.")
    if processes.count > 1:
        raise SurgeonError("Masks are written by one process.", "Start the command without a launcher.")
    images = prepared.image_set
    files = mask_files(images)
    colours = palette(len(names)).tolist()
    legend = {str(number): {"name": name, "colour": colours[number]} for number, name in enumerate(names)}
    written: list[str] = []
    with staged(folder, written) as stage:
        measured = measure(
            {"": prepared.variant},
            prepared.batches(),
            lambda _: WrittenMasks(stage, files, images, written),
            processes=processes,
            progress=progress,
        )
        (stage / LEGEND).write_text(json.dumps(legend, indent=2) + "\n", encoding="utf-8")
        written.append(LEGEND)
    kept = measured.kept[""]
    found = {}
    for index in sorted(kept.shares):
        shares = kept.shares[index]
        found[index] = PredictedMask(
            image=images.identity(index).encode("utf-8", "backslashreplace").decode(),
            file=str(folder / files[index]) if shares else "",
            classes=tuple(
                ClassShare(name=names[number], output=number, share=shares[number])
                for number in sorted(range(len(shares)), key=shares.__getitem__, reverse=True)
                if shares[number]
            ),
            confidence=kept.confidence[index],
        )
    return found
