"""Accuracy and cross-entropy of published CIFAR-10 ResNets by alpha, without retraining.

    python benchmarks/cifar_alpha.py WEIGHTS_FOLDER CIFAR10_PARQUET

WEIGHTS_FOLDER holds resnet20-12fca82f.th and resnet56-4bfd9763.th (github.com/akamaster/pytorch_resnet_cifar10);
CIFAR10_PARQUET is a test split with the columns image and label, as on the Hugging Face hub.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import torch
from PIL import Image

import surgeon
from surgeon.measuring.engine import evaluate
from surgeon.models.sources import load_model

ALPHAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
FILES = {"cifar-resnet20": "resnet20-12fca82f.th", "cifar-resnet56": "resnet56-4bfd9763.th"}


def read_images(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as float in [0, 1], (N, 3, 32, 32), and labels."""
    table = pyarrow.parquet.read_table(path).to_pylist()
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")) for row in table])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255, torch.tensor([row["label"] for row in table])


def main(weights: Path, parquet: Path) -> None:
    pixels, labels = read_images(parquet)
    columns = []
    for name, file in FILES.items():
        loaded = load_model(name, weights=weights / file)
        assert loaded.origin.preprocessing is not None
        mean, std = (
            torch.tensor(values).reshape(1, 3, 1, 1)
            for values in (loaded.origin.preprocessing.mean, loaded.origin.preprocessing.std)
        )
        images = ((pixels - mean) / std).to(memory_format=torch.channels_last)
        scores = []
        for alpha in ALPHAS:
            model = surgeon.convert(loaded.model, "example-weighted", alpha=alpha).to(memory_format=torch.channels_last)
            scores.append(evaluate(model, zip(images.split(250), labels.split(250), strict=True)))
        columns.append(scores)
    for i, alpha in enumerate(ALPHAS):
        cells = [f"{100 * c[i].accuracy:.2f} / {c[i].cross_entropy:.4f}" for c in columns]
        print(f"| {alpha:g} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
