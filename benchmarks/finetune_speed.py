"""Images per second and memory of `surgeon finetune` against a loop in the style of timm's train.py.

The same network, batch, crop, flip and number of worker processes, in turns, decoding included. The fastest epoch of
each counts, and of several peaks of memory, workers included, the lowest: peaks of the same loop differ.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from resident import peak_of
from timing import figure
from timm.data import ImageDataset, create_loader
from timm.optim import create_optimizer_v2

from surgeon import checkpoint
from surgeon.cli.host import set_up_process
from surgeon.commands.finetune.operation import run_finetuning
from surgeon.commands.finetune.request import FinetuneRequest
from surgeon.data.loaders import usable_cores
from surgeon.measuring.preparation import InferenceRequest
from surgeon.results import Epoch
from surgeon.training.recipe import check_recipe

MODEL, SIZE, BATCH, IMAGES, CLASSES = "mobilenetv3_small_100", 224, 32, 320, 10
ROUNDS, EPOCHS, ROUNDS_OF_MEMORY = 3, 2, 2
AT_LEAST, AIM, MOST_MEMORY = 1.8, 2.0, 1.05


def photographs(folder: Path) -> Path:
    """Smooth noise as JPEG files of 320 x 256, about as costly to decode as photographs."""
    random = np.random.default_rng(0)
    for number in range(IMAGES):
        coarse = Image.fromarray(random.integers(0, 255, (32, 40, 3), dtype=np.uint8))
        for split in ("train", "validation") if number < 2 * CLASSES else ("train",):
            path = folder / split / str(number % CLASSES) / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            coarse.resize((320, 256), Image.Resampling.BICUBIC).save(path, quality=90)
    return folder


class Fastest:
    """Remembers the images per second of the epochs."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def begin(self, *_: object) -> None:
        pass

    def step(self, *_: object) -> None:
        pass

    def epoch(self, epoch: Epoch) -> None:
        self.rates.append(epoch.images_per_second)


def ours(folder: Path) -> float:
    set_up_process()
    keys = {"epochs": EPOCHS, "batch_size": BATCH, "sweep": None, "norm_weight_decay": False, "validate_every": EPOCHS}
    watcher = Fastest()
    with tempfile.TemporaryDirectory() as run:
        request = FinetuneRequest(
            InferenceRequest(data=str(folder)), check_recipe(keys, "benchmark"), Path(run) / "run"
        )
        run_finetuning(lambda: checkpoint.open_model(MODEL, pretrained=False), request, watcher, lambda *_: None)
    return max(watcher.rates)


def theirs(folder: Path) -> float:
    model = timm.create_model(MODEL, num_classes=CLASSES).train()
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.01, weight_decay=1e-4, momentum=0.9)
    loader = create_loader(
        ImageDataset(str(folder / "train")),
        input_size=(3, SIZE, SIZE),
        batch_size=BATCH,
        is_training=True,
        use_prefetcher=False,
        no_aug=False,
        color_jitter=None,
        num_workers=usable_cores(),
        persistent_workers=True,
    )
    criterion = torch.nn.CrossEntropyLoss()
    rates = []
    for _ in range(EPOCHS):
        start, seen = time.perf_counter(), 0
        for images, labels in loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            seen += len(labels)
        rates.append(seen / (time.perf_counter() - start))
    return max(rates)


ALTERNATIVES = {"surgeon finetune": ours, "timm-style loop": theirs}


def command(name: str, folder: str) -> list[str]:
    """For a process of its own: surgeon changes how a process keeps its memory."""
    return [sys.executable, __file__, name, folder]


def in_own_process(name: str, folder: str) -> float:
    return float(subprocess.run(command(name, folder), capture_output=True, text=True, check=True).stdout.split()[-1])


def main() -> int:
    best, peaks = dict.fromkeys(ALTERNATIVES, 0.0), dict.fromkeys(ALTERNATIVES, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        photographs(Path(folder))
        for _ in range(ROUNDS):
            for name in ALTERNATIVES:
                best[name] = max(best[name], in_own_process(name, folder))
        for _ in range(ROUNDS_OF_MEMORY):  # apart, because looking takes time
            for name in ALTERNATIVES:
                peaks[name] = min(peaks[name], peak_of(command(name, folder)))
    title = f"{MODEL}, {SIZE} px, batch {BATCH}, decoding included, surgeon finetune against a timm-style loop"
    print(title)
    for name, speed in best.items():
        print(f"  {name:<24}{speed:8.1f} images/s{peaks[name]:10.0f} MiB")
    speed, memory = (one["surgeon finetune"] / one["timm-style loop"] for one in (best, peaks))
    kept = figure(title, "images/s", speed, at_least=AT_LEAST, aim=AIM)
    return 0 if figure(title, "peak memory", memory, at_most=MOST_MEMORY) and kept else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(ALTERNATIVES[sys.argv[1]](Path(sys.argv[2])))
    else:
        sys.exit(main())
