"""Images per second of every mix, against timm's Mixup and torchvision's MixUp and CutMix on the same batch.

Limits: mixup and cutmix are not slower than the faster of those two. The other mixes take at most twice
as long as that: those that average pixels as mixup there, and those that choose among them as cutmix.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from timing import figure
from timm.data import Mixup
from torch import Tensor
from torchvision.transforms import v2

from surgeon.augment.base import Kind, augments
from surgeon.augment.pipeline import mixer
from surgeon.cli.host import keep_heap

BATCHES = {(128, 3, 32, 32): 10, (32, 3, 224, 224): 1000}
ROUNDS, SEEDS = 15, 8
AVERAGING = ("mixup", "noisy-mixup", "bc-plus", "vh-mixup", "vh-bc-plus")
OTHERS = 2.0
HELD = {"noisy-mixup": 2.4}  # a draw for every pixel
"""Limits where the aim cannot be held."""


def competitors(images: Tensor, labels: Tensor, classes: int) -> dict[str, Callable[[], object]]:
    """Theirs, and ours under their own names."""
    timm_mixup = Mixup(mixup_alpha=1.0, cutmix_alpha=0.0, label_smoothing=0.0, num_classes=classes)
    timm_cutmix = Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, label_smoothing=0.0, num_classes=classes)
    tv_mixup, tv_cutmix = v2.MixUp(num_classes=classes), v2.CutMix(num_classes=classes)
    alternatives: dict[str, Callable[[], object]] = {
        "timm mixup": lambda: timm_mixup(images, labels),
        "torchvision mixup": lambda: tv_mixup(images, labels),
        "timm cutmix": lambda: timm_cutmix(images, labels),
        "torchvision cutmix": lambda: tv_cutmix(images, labels),
    }
    for name in augments:
        if augments[name].kind is Kind.MIX:
            mix = mixer(name, classes=classes)
            alternatives[name] = lambda mix=mix: mix(images, labels, None)
    return alternatives


def best_of_each_draw(alternatives: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The mean over several draws of the best time for each: theirs have one box for the batch, which may be empty."""
    best = {name: [float("inf")] * SEEDS for name in alternatives}
    for _ in range(ROUNDS):
        for seed in range(SEEDS):
            for name, run in alternatives.items():
                np.random.seed(seed)  # timm's
                torch.manual_seed(seed)
                start = time.perf_counter()
                run()
                best[name][seed] = min(best[name][seed], time.perf_counter() - start)
    return {name: sum(times) / SEEDS for name, times in best.items()}


def report(title: str, seconds: dict[str, float], count: int) -> bool:
    """Print images per second and how long each takes compared with the fastest of theirs."""
    print(title)
    kept = True
    for name, value in seconds.items():
        theirs = "mixup" if name in AVERAGING or name.endswith(" mixup") else "cutmix"
        ratio = value / min(seconds[f"timm {theirs}"], seconds[f"torchvision {theirs}"])
        speed = f"{count / value:12,.0f} images/s "
        if " " in name:
            print(f"  {name:<34}{speed}{ratio:7.2f}x")
        else:
            limit = 1.0 if name in ("mixup", "cutmix") else OTHERS
            kept &= figure(
                title, f"{name}, time of {theirs}", ratio, at_most=HELD.get(name, limit), aim=limit, before=speed
            )
    return kept


def main() -> int:
    keep_heap()
    torch.manual_seed(0)
    kept = True
    for shape, classes in BATCHES.items():
        for memory_format in (torch.contiguous_format, torch.channels_last):
            images = torch.randn(shape).contiguous(memory_format=memory_format)
            labels = torch.randint(classes, shape[:1])
            seconds = best_of_each_draw(competitors(images, labels, classes))
            layout = str(memory_format).removeprefix("torch.").replace("_", " ")
            title = f"{'x'.join(map(str, shape))}, {classes} classes, {layout}, {torch.get_num_threads()} threads"
            kept &= report(title, seconds, shape[0])
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
