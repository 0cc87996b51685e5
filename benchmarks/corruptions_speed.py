"""All fifteen corruptions at five severities: images per second, against imagecorruptions and against ResNet-20.

Limits: at 224 px at least twice as fast as imagecorruptions in as many processes as there are cores (left out where it
is not installed: pip install imagecorruptions-imaug); at 32 px less time than ResNet-20 takes for the same images.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from timing import figure
from torch import Tensor

from surgeon.conditions.base import ask
from surgeon.data.loaders import usable_cores
from surgeon.models.sources import load_model

LARGE, SMALL = (8, 224), (128, 32)
ROUNDS = 3
FASTER = 2.0


def images(count: int, side: int) -> Tensor:
    """Smooth in some places and rough in others, as photographs are."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 7, 7, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (side, side), mode="bicubic")
    rough = 0.1 * torch.rand(count, 3, side, side, generator=generator) * coarse.mean((2, 3), keepdim=True)
    pixels = (smooth + rough).clamp(0, 1).mul(255).round().div(255)
    return pixels.contiguous(memory_format=torch.channels_last)


def corrupt_all(pixels: Tensor) -> dict[str, float]:
    """Seconds for each corruption, over five severities."""
    numbers = torch.arange(len(pixels))
    seconds: dict[str, float] = {}
    for asked in ask(["corruptions"]):
        start = time.perf_counter()
        asked.apply(pixels, numbers, numbers)
        name = asked.condition.name
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
    return seconds


def _their_turn(task: tuple[np.ndarray, str]) -> None:
    import cv2
    from imagecorruptions import corrupt

    cv2.setNumThreads(1)  # one process for each core
    for severity in range(1, 6):
        corrupt(task[0], corruption_name=task[1].replace("-", "_"), severity=severity)


def their_seconds(pixels: Tensor, names: list[str]) -> dict[str, float]:
    """Seconds for each corruption, over five severities, with the best of several rounds."""
    pictures = [image.permute(1, 2, 0).mul(255).byte().numpy() for image in pixels]
    best = dict.fromkeys(names, float("inf"))
    with multiprocessing.get_context("spawn").Pool(usable_cores()) as pool:
        for _ in range(1 + ROUNDS):  # the first also imports and compiles
            for name in names:
                start = time.perf_counter()
                pool.map(_their_turn, [(picture, name) for picture in pictures], chunksize=1)
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def best_of(run: Callable[[], dict[str, float]]) -> dict[str, float]:
    rounds = [run() for _ in range(1 + ROUNDS)]
    return {name: min(seconds[name] for seconds in rounds) for name in rounds[0]}


def main() -> int:
    torch.set_num_threads(usable_cores())
    large, small = images(*LARGE), images(*SMALL)
    ours = best_of(lambda: corrupt_all(large))
    there = importlib.util.find_spec("imagecorruptions") is not None
    theirs = their_seconds(large, list(ours)) if there else {}
    made = 5 * len(large)
    title = f"{LARGE[1]} px, {usable_cores()} cores"
    print(f"{title}: images/s, ours and of imagecorruptions")
    for name, seconds in ours.items():
        other = f"{made / theirs[name]:10,.0f}  {theirs[name] / seconds:5.1f}x" if there else ""
        print(f"  {name:<24}{made / seconds:10,.0f}{other}")
    kept = True
    line = f"  {'all':<24}{len(ours) * made / sum(ours.values()):10,.0f}"
    if there:
        line += f"{len(ours) * made / sum(theirs.values()):10,.0f}"
    print(line if there else f"{line}  (imagecorruptions is not installed: not compared)")
    if there:
        ratio = sum(theirs.values()) / sum(ours.values())
        kept = figure(title, "speed of imagecorruptions", ratio, at_least=FASTER)
    network = load_model("cifar-resnet20", pretrained=False).model.eval().to(memory_format=torch.channels_last)

    def predict() -> dict[str, float]:
        start = time.perf_counter()
        with torch.inference_mode():
            network(small)
        return {"": time.perf_counter() - start}

    corrupting = sum(best_of(lambda: corrupt_all(small)).values()) / 75
    predicting = best_of(predict)[""]
    title = f"{SMALL[1]} px, an image and condition"
    print(f"{title}: {1e6 * corrupting / len(small):.0f} µs; ResNet-20 takes {1e6 * predicting / len(small):.0f} µs")
    return 0 if figure(title, "time of ResNet-20", corrupting / predicting, at_most=1) and kept else 1


if __name__ == "__main__":
    sys.exit(main())
