"""Real images: the pixels timm would see, the figures that plain PyTorch code gave, and flat memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from timm.data import create_transform

from surgeon.core.errors import SurgeonError
from surgeon.data.check import check_classes
from surgeon.data.loaders import batches
from surgeon.data.opening import open_data
from surgeon.data.stratified import limit
from surgeon.data.transforms import Transform, normalise
from surgeon.models.catalog import CATALOG
from surgeon.models.fitting import load_into
from surgeon.models.origin import Preprocessing
from surgeon.models.weights import read_weights

DATA = Path(__file__).parents[2].parent / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the real weights and images are not in {DATA}")

LITE0 = Preprocessing(
    input_size=(3, 224, 224), mean=(0.5,) * 3, std=(0.5,) * 3, interpolation="bicubic", crop_pct=0.875
)
CIFAR = Preprocessing(input_size=(3, 32, 32), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.getbasetemp() / "datasets-cache")


def test_the_sets_are_what_their_description_says() -> None:
    found = {
        name: (images.split, len(images), len(images.class_names))
        for name in ("cifar10", "imagenet-val-1k", "flowers102")
        for images in [open_data(str(DATA / name))]
    }
    assert found == {
        "cifar10": ("test", 5000, 10),
        "imagenet-val-1k": ("validation", 1000, 1000),
        "flowers102": ("test", 1020, 102),
    }


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("name", "size"), [("imagenet-val-1k", 224), ("imagenet-val-1k", 128), ("flowers102", 224)])
def test_pixels_and_floats_are_those_of_timm(name: str, size: int, interpolation: str) -> None:
    preprocessing = LITE0.model_copy(update={"input_size": (3, size, size), "interpolation": interpolation})
    arguments = {"interpolation": interpolation, "crop_pct": 0.875, "mean": LITE0.mean, "std": LITE0.std}
    in_bytes = create_transform((3, size, size), normalize=False, **arguments)
    in_floats = create_transform((3, size, size), **arguments)
    images = open_data(str(DATA / name))
    transform = Transform(preprocessing)
    for index in range(0, len(images), len(images) // 20):
        image = images.image(index)
        pixels = transform(image)
        assert torch.equal(pixels, in_bytes(image.convert("RGB")))
        floats = normalise(pixels[None], preprocessing)[0]
        assert torch.allclose(floats, in_floats(image.convert("RGB")), rtol=0, atol=1e-6)


def test_places_in_the_arrow_file_are_those_of_the_library() -> None:
    images = open_data(str(DATA / "imagenet-val-1k"))
    (file,) = (DATA / "imagenet-val-1k").glob("*.parquet")
    reference = datasets.load_dataset("parquet", data_files=str(file), split="train")
    reference = reference.cast_column("image", datasets.Image(decode=False))
    for index in range(0, 1000, 37):
        assert images.encoded.read(index) == reference[index]["image"]["bytes"]
        assert images.labels[index] == reference[index]["label"]


@pytest.mark.long
def test_resnet20_has_its_published_accuracy_through_this_loader() -> None:
    model = CATALOG["cifar-resnet20"].build(num_classes=10, in_chans=3)
    load_into(model, read_weights(DATA / "weights" / "resnet20-12fca82f.th"))
    model.eval().to(memory_format=torch.channels_last)
    images = open_data(str(DATA / "cifar10"), "test")
    check_classes(images, 10)
    with torch.inference_mode():
        right = sum(int((model(b.images).argmax(1) == b.labels).sum()) for b in batches(images, CIFAR, 250))
    assert right / len(images) == pytest.approx(0.9148, abs=0.0005)


def test_flowers_do_not_fit_an_imagenet_network() -> None:
    with pytest.raises(SurgeonError, match="'flowers102' has 102 classes, but the network has 1,000 outputs"):
        check_classes(open_data(str(DATA / "flowers102")), 1000)


def test_a_limit_of_flowers_has_every_class() -> None:
    images = open_data(str(DATA / "flowers102"))
    part = images.subset(limit(images.labels, 204))
    assert np.bincount(part.labels).tolist() == [2] * 102


MEMORY = """
import resource, sys, numpy as np, datasets
datasets.config.HF_DATASETS_CACHE = sys.argv[3]
from surgeon.data.loaders import batches
from surgeon.data.opening import open_data
from surgeon.models.origin import Preprocessing
images = open_data(sys.argv[1], "train")
images = images.subset(np.resize(np.arange(len(images)), int(sys.argv[2])))
small = Preprocessing(input_size=(3, 32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)
assert sum(len(batch.labels) for batch in batches(images, small, 100)) == len(images)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_length_of_the_data() -> None:
    open_data(str(DATA / "cifar10"), "train")  # converts the Parquet file, which takes memory of its own

    def peak(size: int) -> int:
        arguments = [str(DATA / "cifar10"), str(size), str(datasets.config.HF_DATASETS_CACHE)]
        return int(subprocess.run([sys.executable, "-c", MEMORY, *arguments], capture_output=True, check=True).stdout)

    assert peak(10_000) < peak(1_000) + 15
