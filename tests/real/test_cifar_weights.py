"""Published CIFAR-10 weights in our networks must give the published accuracy on real images."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from surgeon.models.catalog import CATALOG
from surgeon.models.fitting import load_into
from surgeon.models.weights import read_weights

DATA = Path(__file__).parents[2].parent / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the real weights and images are not in {DATA}")


BATCH = 250


@pytest.fixture(scope="module")
def cifar10() -> tuple[Tensor, Tensor]:
    """The first 5,000 CIFAR-10 test images, as bytes, and their labels."""
    (file,) = (DATA / "cifar10").glob("test-*.parquet")
    table = parquet.read_table(file).to_pydict()
    images = np.stack([np.asarray(Image.open(BytesIO(image["bytes"]))) for image in table["image"]])
    return torch.from_numpy(images).permute(0, 3, 1, 2), torch.tensor(table["label"])


def logits_of(name: str, file: str, images: Tensor) -> Tensor:
    architecture = CATALOG[name]
    network = architecture.build(10, 3).eval().to(memory_format=torch.channels_last)
    load_into(network, read_weights(DATA / "weights" / file))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (architecture.mean, architecture.std))
    batches = ((batch / 255 - mean) / std for batch in images.split(BATCH))
    with torch.inference_mode():
        return torch.cat([network(batch.contiguous(memory_format=torch.channels_last)) for batch in batches])


# ResNet-56 sees a fifth of the images, for speed; all 5,000 give 92.96% and 0.3771.
@pytest.mark.parametrize(
    ("name", "file", "number", "correct", "cross_entropy"),
    [
        pytest.param("cifar-resnet20", "resnet20-12fca82f.th", 5000, 4574, 0.4003, marks=pytest.mark.long),
        ("cifar-resnet56", "resnet56-4bfd9763.th", 1000, 926, 0.3596),
    ],
)
def test_published_accuracy(
    name: str, file: str, number: int, correct: int, cross_entropy: float, cifar10: tuple[Tensor, Tensor]
) -> None:
    images, labels = (column[:number] for column in cifar10)
    logits = logits_of(name, file, images)
    # One image either way: another processor may round a near tie differently.
    assert abs(int((logits.argmax(1) == labels).sum()) - correct) <= 1
    assert functional.cross_entropy(logits, labels).item() == pytest.approx(cross_entropy, abs=1e-4)
