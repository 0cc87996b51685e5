"""The bundled handwritten digits (UCI; the licence lies beside them): 1,797 grey 8x8 images, cut into fixed splits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

DIGITS = Path(__file__).parents[1] / "assets" / "digits" / "digits.npz"
SPLITS = {"train": 0.5, "validation": 0.25, "test": 0.25}
SEED = 0
WHITE = 16  # the digits have 17 shades

Split = Literal["train", "validation", "test"]


def load_digits(split: Split, mean: float = 0.5, std: float = 0.5) -> tuple[Tensor, Tensor]:
    """Normalised images (N, 1, 8, 8) and labels of one split; every split holds each class in equal shares."""
    pixels, labels = digit_pixels(split)
    images = torch.from_numpy(pixels).float().unsqueeze(1) / 255
    return (images - mean) / std, torch.from_numpy(labels).long()


def digit_pixels(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """8-bit images (N, 8, 8) and labels of one split."""
    with np.load(DIGITS) as digits:
        images, labels = digits["images"], digits["labels"].astype(np.int64)
    indices = _split_indices(labels, split)
    return (images[indices] * (255 / WHITE)).round().astype(np.uint8), labels[indices]


def _split_indices(labels: np.ndarray, split: Split) -> np.ndarray:
    random = np.random.default_rng(SEED)
    start = sum(share for name, share in SPLITS.items() if list(SPLITS).index(name) < list(SPLITS).index(split))
    chosen = []
    for label in np.unique(labels):
        of_class = random.permutation(np.flatnonzero(labels == label))
        first, last = (round(edge * len(of_class)) for edge in (start, start + SPLITS[split]))
        chosen.append(of_class[first:last])
    return np.sort(np.concatenate(chosen))
