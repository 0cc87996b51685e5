"""What conditions make of a few images, to look at: a part of the `preview` command's operation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from surgeon.augment.apply import augment_singly
from surgeon.augment.pipeline import build_augmentation
from surgeon.commands.preview import Pictures
from surgeon.conditions.base import Asked, as_bytes, ask
from surgeon.core.errors import SurgeonError
from surgeon.measuring.conditions import denormalise
from surgeon.report.gallery import Gallery, LabelShare, Row, Tile


def preview_condition(spec: str, pictures: Pictures, about: str, seed: int) -> Gallery:
    """A column for each image, and a row for each severity; of several conditions a row for each, of one image."""
    asked = ask([spec])
    for each in asked:
        if each.condition.needs_network:
            raise SurgeonError(
                f"The condition {each.name!r} is made for a network, so it cannot be previewed without one.",
                "`surgeon ls conditions` names those that need none.",
            )
    pixels = _pixels(pictures, seed)
    several = len({each.condition.name for each in asked}) > 1
    rows = _grid(asked, pixels[:1], seed) if several else _severities(asked, pixels, pictures, seed)
    return Gallery(f"{spec} · {about}", tuple(rows))


def _severities(asked: list[Asked], pixels: Tensor, pictures: Pictures, seed: int) -> Iterator[Row]:
    labels = [(LabelShare(name, 1.0),) for name in pictures.class_names[: pictures.shown]]
    originals = zip(_visible(pixels), labels, strict=True)
    yield Row("original", "", tuple(Tile(image, label) for image, label in originals))
    for each in asked:
        remark = f"severity {each.severity}" if each.severity else ""
        yield Row(each.condition.name, remark, tuple(map(Tile, _visible(_under(each, pixels, seed)))))


def _grid(asked: list[Asked], pixel: Tensor, seed: int) -> Iterator[Row]:
    columns: dict[str, list[Asked]] = {}
    for each in asked:
        columns.setdefault(each.condition.name, []).append(each)
    for number, (name, members) in enumerate(columns.items()):
        titles = ["original", *(f"severity {each.severity}" if each.severity else "" for each in members)]
        labels = [(LabelShare(title, 1.0),) if title and number == 0 else () for title in titles]
        images = _visible(torch.cat([pixel, *(_under(each, pixel, seed) for each in members)]))
        tiles = (Tile(image, label) for image, label in zip(images, labels, strict=True))
        yield Row(name, members[0].condition.family.value, tuple(tiles))


def _under(asked: Asked, pixels: Tensor, seed: int) -> Tensor:
    numbers = torch.arange(len(pixels))
    return asked.apply(pixels, torch.zeros_like(numbers), numbers, seed)


def _pixels(pictures: Pictures, seed: int) -> Tensor:
    """What a network would see of the images that are shown, before it is normalised."""
    shown = pictures.images[: pictures.shown]
    nothing = build_augmentation([], pictures.preprocessing)
    return denormalise(
        augment_singly(nothing, shown, range(len(shown)), pictures.preprocessing, seed), pictures.preprocessing
    )


def _visible(pixels: Tensor) -> list[npt.NDArray[np.uint8]]:
    return [image.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy() for image in as_bytes(pixels)]
