"""What augmentations and conditions make of images and their masks, to look at: a part of the `preview` command."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torchvision.transforms.functional import pil_to_tensor

from surgeon.augment.base import augments
from surgeon.augment.masked import allowed_with_masks
from surgeon.augment.pipeline import Augmentation, build_augmentation
from surgeon.conditions.base import ask
from surgeon.core.errors import SurgeonError
from surgeon.data.images import ImageSet, UnreadableImageError
from surgeon.data.masks import BadMaskError
from surgeon.data.seeding import seed_from, seeded
from surgeon.data.transforms import normalise
from surgeon.measuring.conditions import denormalise
from surgeon.models.origin import Preprocessing
from surgeon.problems import SEGMENTATION
from surgeon.report.gallery import Gallery, LabelShare, Row, Tile
from surgeon.report.masks import coloured

VERSIONS, SIDE = 3, 224
Shown = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def preview_masks(spec: str, image_set: ImageSet, count: int, seed: int, input_size: int | None) -> Gallery:
    """A column for each image: itself and its mask, then both as they come out.

    Args:
        spec: An augmentation, `all` of those that masks can follow, or conditions.
        image_set: The images.
        count: How many to show.
        seed: Of everything random.
        input_size: Of the shorter side.
    """
    stated = SEGMENTATION.preprocessing(None, image_set, SIDE)
    assert stated is not None
    preprocessing = SEGMENTATION.resized(stated, input_size) if input_size else stated
    places = _readable(image_set, np.random.default_rng(seed).permutation(len(image_set)), count)
    rows = [*_rows("original", "", [_augmented(image_set, place, None, preprocessing, 0) for place in places])]
    if spec == "all":
        for name in allowed_with_masks():
            augmentation = build_augmentation([name], preprocessing, masks=True)
            rows += _rows(name, "", [_augmented(image_set, p, augmentation, preprocessing, seed) for p in places])
    elif spec.partition(":")[0] in augments:
        augmentation = build_augmentation([spec], preprocessing, masks=True)
        for version in range(1, VERSIONS + 1):
            shown = [_augmented(image_set, p, augmentation, preprocessing, seed_from(seed, version)) for p in places]
            rows += _rows("augmented", f"version {version}", shown)
    else:
        rows += _under(spec, image_set, places, preprocessing, seed)
    height, width = preprocessing.input_size[1:]
    return Gallery(f"{spec} · {image_set.name} ({image_set.split}), {height}x{width} px, with masks", tuple(rows))


def _readable(image_set: ImageSet, order: npt.NDArray[np.int64], count: int) -> list[int]:
    found: list[int] = []
    for index in order.tolist():
        try:
            image_set.mask(index, image_set.image(index).size)
        except (UnreadableImageError, BadMaskError):
            continue
        found.append(index)
        if len(found) == count:
            return found
    if not found:
        raise SurgeonError(f"None of the images of {image_set.name!r} can be read with its mask.")
    return found


def _augmented(
    image_set: ImageSet, index: int, augmentation: Augmentation | None, preprocessing: Preprocessing, seed: int
) -> Shown:
    """What is done to one image, what is done to batches included; no augmentation: the whole image."""
    used = augmentation or build_augmentation([], preprocessing, masks=True)
    image = image_set.image(index)
    mask = torch.from_numpy(image_set.mask(index, image.size))
    assert used.joint is not None
    with seeded(seed, index):
        image, mask = used.joint(image, mask)
        for operation in used.image:
            image = operation(image)
    batch = normalise(pil_to_tensor(image)[None], preprocessing)
    batch, _ = used.of_batch(batch, torch.empty(1, 0), torch.Generator().manual_seed(seed_from(seed, index)))
    pixels = denormalise(batch, preprocessing).mul(255).round().to(torch.uint8)[0]
    return pixels.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy(), mask.numpy()


def _under(spec: str, image_set: ImageSet, places: list[int], preprocessing: Preprocessing, seed: int) -> Iterator[Row]:
    originals = [_augmented(image_set, place, None, preprocessing, 0) for place in places]
    pixels = torch.stack([torch.from_numpy(image).permute(2, 0, 1) for image, _ in originals]).float().div(255)
    masks, indices = torch.stack([torch.from_numpy(mask) for _, mask in originals]), torch.tensor(places)
    for asked in ask([spec]):
        moved = asked.masks(pixels, masks, indices, seed)
        changed = asked.apply(pixels, moved, indices, seed).mul(255).round().to(torch.uint8).permute(0, 2, 3, 1)
        shown = list(zip(changed.contiguous().numpy(), moved.numpy(), strict=True))
        yield from _rows(asked.condition.name, f"severity {asked.severity}" if asked.severity else "", shown)


def _rows(name: str, remark: str, shown: list[Shown]) -> Iterator[Row]:
    classes = 1 + max((int(mask.max(initial=0)) for _, mask in shown), default=0)
    label = (LabelShare("mask", 1.0),)
    yield Row(name, remark, tuple(Tile(_square(image)) for image, _ in shown))
    yield Row("", "", tuple(Tile(_square(coloured(mask, classes)), label) for _, mask in shown))


def _square(picture: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """On white, so that it keeps its proportions where all pictures are drawn as squares."""
    height, width = picture.shape[:2]
    side = max(height, width)
    found = np.full((side, side, 3), 255, dtype=np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    found[top : top + height, left : left + width] = picture
    return found
