"""Real weights and images, which are not part of the project; tests that need them are skipped without."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

SHARED = Path(__file__).parents[2].parent / "shared"

Transform = Callable[[Image.Image], Tensor]


@pytest.fixture(scope="session")
def shared() -> Path:
    if not (SHARED / "data").is_dir():
        pytest.skip(f"the real weights and images are not in {SHARED / 'data'}")
    return SHARED


def first_images(pattern: str, number: int, transform: Transform) -> tuple[Tensor, Tensor]:
    """The first images of a parquet file below the shared data, prepared, and their labels."""
    parquet = pytest.importorskip("pyarrow.parquet")
    (file,) = (SHARED / "data").glob(pattern)
    table = parquet.read_table(file).slice(0, number).to_pydict()
    images = [transform(Image.open(BytesIO(image["bytes"])).convert("RGB")) for image in table["image"]]
    return torch.stack(images), torch.tensor(table["label"])
