"""Small images with masks, and small networks that segment them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

HEIGHT, WIDTH = 24, 32
VOID = 255


def scene(seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A picture of three classes, each of a colour of its own, with a void border, and its mask."""
    random = np.random.default_rng(seed)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    top, left = random.integers(2, 12, 2)
    mask[top : top + 9, left : left + 12] = 1
    mask[HEIGHT - 5 :, : WIDTH // 2] = 2
    colours = np.array([[40, 60, 200], [210, 60, 40], [60, 190, 70]], np.float64)
    picture = colours[mask] + random.normal(scale=25, size=(HEIGHT, WIDTH, 3))
    mask[0] = VOID
    return picture.clip(0, 255).astype(np.uint8), mask


def png(pixels: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def write_folders(
    root: Path, splits: dict[str, int], change: Callable[[NDArray[np.uint8]], object] | None = None
) -> Path:
    """SPLIT/images and SPLIT/masks; `change` may change the first mask of the first split."""
    number = 0
    for split, images in splits.items():
        for kind in ("images", "masks"):
            (root / split / kind).mkdir(parents=True)
        for one in range(images):
            picture, mask = scene(number)
            if change is not None and number == 0:
                change(mask)
            (root / split / "images" / f"{one:03}.png").write_bytes(png(picture))
            (root / split / "masks" / f"{one:03}.png").write_bytes(png(mask))
            number += 1
    return root


def write_table(file: Path, images: int, void: int = VOID) -> Path:
    """A Parquet file with the columns image, mask and name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns: dict[str, list[object]] = {"image": [], "mask": [], "name": []}
    for number in range(images):
        picture, mask = scene(number)
        columns["image"].append({"bytes": png(picture), "path": None})
        columns["mask"].append({"bytes": png(np.where(mask == VOID, void, mask).astype(np.uint8)), "path": None})
        columns["name"].append(f"{'dusk' if number % 3 == 0 else 'day'}_{number:03}.png")
    table = pa.table(
        {
            "image": pa.array(columns["image"], kind),
            "mask": pa.array(columns["mask"], kind),
            "name": pa.array(columns["name"]),
        }
    )
    features = {"image": {"_type": "Image"}, "mask": {"_type": "Image"}, "name": {"dtype": "string", "_type": "Value"}}
    import json

    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    parquet.write_table(table.replace_schema_metadata(metadata), file)
    return file


class SmallSegmenter(nn.Module):
    """A residual network that answers as torchvision's: `out`, and in training `aux`."""

    def __init__(self, classes: int = 3, auxiliary: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.head = nn.Conv2d(8, classes, 1)
        self.aux = nn.Conv2d(8, classes, 1) if auxiliary else None

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        early = torch.relu(self.bn1(self.conv1(x)))
        late = torch.relu(early + self.bn2(self.conv2(early)))
        answer = {"out": self.head(late)}
        return answer if self.aux is None else {**answer, "aux": self.aux(early)}


def batches(images: int = 8, size: int = 4) -> list[tuple[Tensor, Tensor]]:
    """For Python: (images, masks)."""
    scenes = [scene(number) for number in range(images)]
    pictures = torch.stack([torch.from_numpy(picture).permute(2, 0, 1).float() / 255 - 0.5 for picture, _ in scenes])
    masks = torch.stack([torch.from_numpy(mask) for _, mask in scenes])
    return list(zip(pictures.split(size), masks.split(size), strict=True))
