"""What shifted images cost in accuracy, and how much alpha, instance-aware and recalibrated statistics give back.

    python benchmarks/shift_study.py cifar -o runs/shift
    python benchmarks/shift_study.py pacs -o runs/shift
    python benchmarks/shift_study.py imagenet -o runs/shift

Weights and images lie in the folder SURGEON_DATA. No network is measured on images that it was adapted with. Whatever
has been measured is appended to a file in the output folder: the same command goes on where it was stopped, and prints
the tables.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet
import torch
from real_data import CIFAR10, FOLDER, IMAGENET, LITE0, leave_unless_there
from shift_tables import print_tables
from torch import Tensor, nn
from torchvision.transforms.functional import gaussian_blur

import surgeon
from surgeon.data.opening import open_data
from surgeon.data.stratified import halves, limit, rest
from surgeon.measuring.preparation import InferenceRequest, prepare
from surgeon.models.origin import LoadedModel
from surgeon.models.sources import load_model
from surgeon.surgery.entropy import minimise_entropy

CIFAR_WEIGHTS = {"cifar-resnet20": "resnet20-12fca82f.th", "cifar-resnet56": "resnet56-4bfd9763.th"}
CORRUPTED_IMAGES = 200
STYLES = ("art_painting", "cartoon", "sketch")
CLEAN = "none"
LARGE_BATCH, SMALL_BATCH, SMALL_STEP = 32, 100, 20
"""Large images as `surgeon recalibrate` takes them; small ones all at once, but in steps of entropy minimisation."""


@dataclass(frozen=True)
class Method:
    """What is done to a network: a rewrite, then recalibration with a prior, then entropy minimisation."""

    rewrite: str | None = None
    prior: float | None = None
    tent: bool = False

    def __str__(self) -> str:
        prior = None if self.prior is None else f"prior {self.prior:g}"
        return " + ".join(filter(None, (self.rewrite, prior, "tent" if self.tent else None))) or "original"

    def applied_to(self, network: nn.Module, unlabelled: Tensor, batch: int, step: int) -> nn.Module:
        network = surgeon.convert(network, self.rewrite) if self.rewrite else copy.deepcopy(network)
        if self.prior is not None:
            surgeon.recalibrate(network, unlabelled.split(batch), prior=self.prior)
        if self.tent:
            minimise_entropy(network, unlabelled.split(step))
        return network.eval()


def methods(alphas: tuple[float, ...], priors: tuple[float, ...], best: float) -> list[Method]:
    weighted = [Method(f"example-weighted:alpha={alpha:g}") for alpha in alphas]
    aware = [Method("instance-aware:k=8"), Method("instance-aware:k=8,weight=0.3")]
    both = [Method(weighted[0].rewrite, prior=best), Method(prior=best, tent=True)]
    return [Method(), *weighted, *aware, *(Method(prior=prior) for prior in priors), *both]


CIFAR_METHODS = methods((0.05, 0.1, 0.2, 0.3), (0, 16, 64, 256, 1024), best=64)
LITE0_METHODS = methods((0.02, 0.05, 0.1), (0, 64, 256, 1024, 4096), best=1024)


@dataclass(frozen=True)
class Images:
    """As a network takes them, with their labels."""

    pixels: Tensor
    labels: Tensor

    def at(self, indices: np.ndarray | slice) -> Images:
        return Images(self.pixels[indices], self.labels[indices])

    def halves(self) -> tuple[Images, Images]:
        first, second = halves(self.labels.numpy())
        return self.at(first), self.at(second)

    @property
    def unlabelled(self) -> Tensor:
        """Shuffled: a batch of one class has statistics of its own."""
        return self.pixels[torch.randperm(len(self.pixels), generator=torch.Generator().manual_seed(0))]


@dataclass(frozen=True)
class Trial:
    """One method for one kind of images."""

    network: str
    kind: str
    method: Method
    model: nn.Module
    folds: tuple[tuple[Images, Images], ...]
    """Images to adapt with, and images to measure on."""
    batch: int = LARGE_BATCH
    step: int = LARGE_BATCH

    @property
    def key(self) -> tuple[str, str, str]:
        return self.network, self.kind, str(self.method)

    def run(self) -> list[int]:
        """Whether each image is right: 1 or 0."""
        right = []
        for use, held_out in self.folds:
            adapted = self.method.applied_to(self.model, use.unlabelled, self.batch, self.step)
            with torch.inference_mode():
                predicted = torch.cat([adapted(part).argmax(1) for part in held_out.pixels.split(self.batch)])
            right += (predicted == held_out.labels).int().tolist()
        return right


def both_ways(images: Images) -> tuple[tuple[Images, Images], ...]:
    """Each half is measured with the network that the other half has adapted."""
    first, second = images.halves()
    return (first, second), (second, first)


def read(loaded: LoadedModel, data: Path, split: str | None = None, where: tuple[str, ...] = ()) -> Images:
    images = open_data(str(data), split, where=where)
    batches = list(prepare(loaded, InferenceRequest(data=str(data)), images).batches())
    return Images(torch.cat([batch.images for batch in batches]), torch.cat([batch.labels for batch in batches]))


def cifar(_: Path) -> Iterator[Trial]:
    """CIFAR-10-C, and clean test images other than those that were corrupted."""
    folder = FOLDER / "cifar10-c"
    table = pyarrow.parquet.read_table(next(folder.glob("*.parquet")), columns=["corruption", "severity"])
    kinds = dict.fromkeys((row["corruption"], row["severity"]) for row in table.to_pylist())
    for name, weights in CIFAR_WEIGHTS.items():
        loaded = load_model(name, weights=FOLDER / "weights" / weights)
        clean = read(loaded, CIFAR10, "test")
        use, _ = clean.at(slice(CORRUPTED_IMAGES)).halves()
        folds = {CLEAN: ((use, clean.at(slice(CORRUPTED_IMAGES, None))),)}
        for corruption, severity in kinds:
            where = (f"corruption={corruption}", f"severity={severity}")
            folds[f"{corruption}-{severity}"] = both_ways(read(loaded, folder, "test", where))
        for kind, parts in folds.items():
            for method in CIFAR_METHODS:
                yield Trial(name, kind, method, loaded.model, parts, SMALL_BATCH, SMALL_STEP)


def pacs(output: Path) -> Iterator[Trial]:
    """A head for photos on frozen features: other styles, and what adapting to them costs on held-out photos."""
    photos, run = output / "photos", output / "photo-head"
    if not (run / "checkpoint").exists():
        _halve_photos(photos)
        surgeon.finetune(
            "tf_efficientnet_lite0", photos, run, weights=LITE0, overwrite=True,
            freeze="backbone", input_size=160, epochs=20, lr=0.1, batch_size=32,
        )  # fmt: skip
    loaded = load_model(str(run / "checkpoint"))
    training, held_out = read(loaded, photos, "train"), read(loaded, photos, "test")
    folds = {"photo": ((training, held_out),)}
    for style in STYLES:
        images = read(loaded, next((FOLDER / "pacs").glob(f"{style}-*.parquet")))
        folds |= {style: both_ways(images), f"photo, adapted to {style}": ((images.halves()[0], held_out),)}
    for kind, parts in folds.items():
        for method in LITE0_METHODS:
            if "adapted" not in kind or method.prior is not None:
                yield Trial("photo-head", kind, method, loaded.model, parts)


def _halve_photos(folder: Path) -> None:
    table = pyarrow.parquet.read_table(next((FOLDER / "pacs").glob("photo-*.parquet")))
    folder.mkdir(parents=True, exist_ok=True)
    for split, part in zip(("train", "test"), halves(table.column("label").to_numpy()), strict=True):
        pyarrow.parquet.write_table(table.take(part), folder / f"{split}-00000-of-00001.parquet")


def _noise(x: Tensor) -> Tensor:
    return (x + 0.18 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)


def _low_contrast(x: Tensor) -> Tensor:
    mean = x.mean((2, 3), keepdim=True)
    return mean + 0.2 * (x - mean)


SHIFTS: dict[str, Callable[[Tensor], Tensor]] = {
    "Gaussian noise, sigma 0.18": _noise,
    "blur, sigma 3": lambda x: gaussian_blur(x, [25, 25], [3.0, 3.0]),
    "contrast x0.2": _low_contrast,
    CLEAN: lambda x: x,
}


def imagenet(_: Path) -> Iterator[Trial]:
    """Damage to images of 224 px, after cropping: 256 of them to adapt with, the others to measure on."""
    loaded = load_model("tf_efficientnet_lite0", weights=LITE0)
    originals = read(loaded, IMAGENET, "validation")
    use = limit(originals.labels.numpy(), 256)
    for kind, shift in SHIFTS.items():
        pixels = shift((originals.pixels + 1) / 2) * 2 - 1  # this network's mean and deviation are 0.5
        images = Images(pixels.contiguous(memory_format=torch.channels_last), originals.labels)
        folds = ((images.at(use), images.at(rest(len(pixels), use))),)
        for method in LITE0_METHODS:
            yield Trial("tf_efficientnet_lite0", kind, method, loaded.model, folds)


STUDIES = {study.__name__: study for study in (cifar, pacs, imagenet)}


def measured(file: Path, trials: Iterator[Trial]) -> dict[tuple[str, ...], list[int]]:
    """The result of every trial, from the file or to be appended to it."""
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    rows = {tuple(row["key"]): row["right"] for row in map(json.loads, lines)}
    for trial in trials:
        if trial.key in rows:
            continue
        rows[trial.key] = trial.run()
        with file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps({"key": trial.key, "right": rows[trial.key]}) + "\n")
        print(*trial.key, f"{100 * np.mean(rows[trial.key]):.2f}%", sep=", ", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    leave_unless_there()
    given.output.mkdir(parents=True, exist_ok=True)
    print_tables(measured(given.output / f"{given.study}.jsonl", STUDIES[given.study](given.output)))


if __name__ == "__main__":
    main()
