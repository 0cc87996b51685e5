"""What conditions make of a few images, to look at: a part of the `preview` command's operation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from surgeon.commands.preview import Pictures
from surgeon.commands.visible import visible
from surgeon.conditions.base import Asked, ask, check_medium
from surgeon.core.errors import SurgeonError
from surgeon.data.transforms import normalise, transform_for
from surgeon.measuring.conditions import renormalise
from surgeon.models.origin import Preprocessing
from surgeon.report.gallery import Gallery, LabelShare, Row, Tile


def preview_condition(spec: str, pictures: Pictures, about: str, seed: int) -> Gallery:
    """A column for each image, and a row for each severity; of several conditions a row for each, of one image."""
    asked = ask([spec])
    for each in asked:
        check_medium(each, pictures.preprocessing.medium)
        if each.condition.needs_network:
            raise SurgeonError(
                f"The condition {each.name!r} is made for a network, so it cannot be previewed without one.",
                "`surgeon ls conditions` names those that need none.",
            )
    pixels = _pixels(pictures)
    several = len({each.condition.name for each in asked}) > 1
    preprocessing = pictures.preprocessing
    rows = _grid(asked, pixels[:1], preprocessing, seed) if several else _severities(asked, pixels, pictures, seed)
    return Gallery(f"{spec} · {about}", tuple(rows), pictures.scales)


def _severities(asked: list[Asked], pixels: Tensor, pictures: Pictures, seed: int) -> Iterator[Row]:
    labels = [(LabelShare(name, 1.0),) for name in pictures.class_names[: pictures.shown]]
    preprocessing = pictures.preprocessing
    originals = zip(_visible(pixels, preprocessing), labels, strict=True)
    yield Row("original", "", tuple(Tile(image, label) for image, label in originals))
    for each in asked:
        seen = _visible(_under(each, pixels, seed), preprocessing)
        yield Row(each.condition.name, each.remark, tuple(map(Tile, seen)))


def _grid(asked: list[Asked], pixel: Tensor, preprocessing: Preprocessing, seed: int) -> Iterator[Row]:
    columns: dict[str, list[Asked]] = {}
    for each in asked:
        columns.setdefault(each.condition.name, []).append(each)
    for number, (name, members) in enumerate(columns.items()):
        titles = ["original", *(each.remark for each in members)]
        labels = [(LabelShare(title, 1.0),) if title and number == 0 else () for title in titles]
        images = _visible(torch.cat([pixel, *(_under(each, pixel, seed) for each in members)]), preprocessing)
        tiles = (Tile(image, label) for image, label in zip(images, labels, strict=True))
        yield Row(name, members[0].condition.family.value, tuple(tiles))


def _under(asked: Asked, pixels: Tensor, seed: int) -> Tensor:
    numbers = torch.arange(len(pixels))
    return asked.apply(pixels, torch.zeros_like(numbers), numbers, seed)


def _pixels(pictures: Pictures) -> Tensor:
    """What a network would see of the images that are shown, before it is normalised: pixels, or waveforms."""
    transform = transform_for(pictures.preprocessing)
    seen = torch.stack([transform(image) for image in pictures.images[: pictures.shown]])
    return seen.float().div_(255) if pictures.preprocessing.is_reversible else seen


def _visible(pixels: Tensor, preprocessing: Preprocessing) -> list[npt.NDArray[np.uint8]]:
    normalised = (renormalise if preprocessing.is_reversible else normalise)(pixels, preprocessing)
    return visible(normalised, preprocessing)
