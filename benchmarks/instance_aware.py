"""Accuracy of a published CIFAR-10 ResNet-20 on shifted images, with and without instance-aware BatchNorm."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet
import torch
from PIL import Image
from real_data import CIFAR10, RESNET20, leave_unless_there
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

import surgeon
from surgeon.models.sources import load_model

SPECS = ("instance-aware:k=8", "instance-aware:k=8,weight=0.3", "example-weighted:alpha=0.3")
IMAGES, BATCH = 2000, 250


def contrast(x: Tensor) -> Tensor:
    mean = torch.tensor([0.485, 0.456, 0.406]).reshape(3, 1, 1)
    return mean + 0.2 * (x - mean)


def noise(x: Tensor) -> Tensor:
    return (x + 0.08 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)


def jpeg(x: Tensor) -> Tensor:
    files = []
    for image in x:
        file = io.BytesIO()
        Image.fromarray((255 * image).round().byte().permute(1, 2, 0).numpy()).save(file, "JPEG", quality=20)
        files.append(file)
    return _pixels(files)


SHIFTS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "contrast x0.2": contrast,
    "blur, sigma 1.2": lambda x: gaussian_blur(x, [9, 9], [1.2, 1.2]),
    "brightness x0.4": lambda x: 0.4 * x,
    "noise, sigma 0.08": noise,
    "JPEG, quality 20": jpeg,
}


def _pixels(files: list[io.BytesIO]) -> Tensor:
    arrays = [np.asarray(Image.open(file).convert("RGB")) for file in files]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).float() / 255


def read_images(folder: Path) -> tuple[Tensor, Tensor]:
    """The first images of the test split as float in [0, 1], and their labels."""
    rows = pyarrow.parquet.read_table(next(folder.rglob("test*.parquet"))).slice(0, IMAGES).to_pylist()
    image, label = (next(key for key in rows[0] if key.startswith(name)) for name in ("im", "label"))
    return _pixels([io.BytesIO(row[image]["bytes"]) for row in rows]), torch.tensor([row[label] for row in rows])


def main() -> int:
    leave_unless_there()
    images, labels = read_images(CIFAR10)
    loaded = load_model("cifar-resnet20", weights=RESNET20)
    assert loaded.origin.preprocessing is not None
    mean, std = (
        torch.tensor(values).reshape(1, 3, 1, 1)
        for values in (loaded.origin.preprocessing.mean, loaded.origin.preprocessing.std)
    )
    networks = [loaded.model.eval(), *(surgeon.convert(loaded.model, spec).eval() for spec in SPECS)]
    print(f"| shift of {len(labels):,} images | original | {' | '.join(SPECS)} |")
    with torch.inference_mode():
        for name, shift in SHIFTS.items():
            batches = ((shift(images) - mean) / std).split(BATCH)
            correct = [torch.cat([net(batch) for batch in batches]).argmax(1) == labels for net in networks]
            print(f"| {name} | {' | '.join(f'{100 * right.float().mean():.1f}%' for right in correct)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
