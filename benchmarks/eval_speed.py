"""`surgeon eval`, decoding included: against the bare network on tensors in memory, and against a plain timm loop.

Each measurement has a process of its own, because surgeon changes how the process keeps its memory.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from real_data import CIFAR10, IMAGENET, LITE0, RESNET20, leave_unless_there
from timing import figure

MODEL, SPLIT, IMAGES, BATCH, WORKERS = "tf_efficientnet_lite0", "validation", 500, 32, 2
ROUNDS, WANTED = 3, 2.5
OF_BARE = 0.85
"""The share of the bare network's images/s that an evaluation should reach."""


@dataclass(frozen=True)
class Case:
    """A network with its images."""

    model: str
    weights: Path
    data: Path
    split: str
    images: int


CASES = {
    "32 px": Case("cifar-resnet20", RESNET20, CIFAR10, "test", 4000),
    "224 px": Case(MODEL, LITE0, IMAGENET, SPLIT, 200),
}


def of_bare(case: str, threads: int) -> float:
    """Images/s of an evaluation against those of its network on the same batches, ready in memory; best of several."""
    import torch

    from surgeon.checkpoint import open_model
    from surgeon.cli.host import keep_heap
    from surgeon.commands.evaluate import run_evaluation
    from surgeon.measuring.preparation import InferenceRequest, prepare

    keep_heap()
    torch.set_num_threads(threads)
    chosen = CASES[case]
    loaded = open_model(chosen.model, weights=chosen.weights)
    request = InferenceRequest(data=str(chosen.data), split=chosen.split, limit=chosen.images)
    task = prepare(loaded, request)
    ready = [batch.images for batch in task.batches()]
    network = task.model.eval()

    def bare() -> float:
        start = time.perf_counter()
        with torch.inference_mode():
            for images in ready:
                network(images)
        return time.perf_counter() - start

    bare()
    seconds = [(bare(), run_evaluation(loaded, request, lambda *_: None).seconds) for _ in range(ROUNDS)]
    return min(one for one, _ in seconds) / min(other for _, other in seconds)


def plain_timm_loop() -> float:
    """create_model, create_transform, DataLoader: default settings."""
    import timm
    import torch
    from datasets import load_dataset
    from timm.data import create_transform, resolve_data_config

    model = timm.create_model(MODEL, checkpoint_path=str(LITE0)).eval()
    transform = create_transform(**resolve_data_config({}, model=model))
    rows = load_dataset("parquet", data_files=str(next(IMAGENET.glob("*.parquet"))), split=f"train[:{IMAGES}]")
    rows.set_transform(
        lambda batch: {
            "image": [transform(image.convert("RGB")) for image in batch["image"]],
            "label": batch["label"],
        }
    )
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH, num_workers=WORKERS)
    start = time.perf_counter()
    correct = 0
    with torch.no_grad():
        for batch in loader:
            correct += int((model(batch["image"]).argmax(1) == batch["label"]).sum())
    return IMAGES / (time.perf_counter() - start)


def surgeon_eval() -> float:
    from surgeon.checkpoint import open_model
    from surgeon.cli.host import set_up_process
    from surgeon.commands.evaluate import run_evaluation
    from surgeon.measuring.preparation import InferenceRequest

    set_up_process()
    loaded = open_model(MODEL, weights=LITE0)
    request = InferenceRequest(data=str(IMAGENET), split=SPLIT, limit=IMAGES, batch_size=BATCH, workers=WORKERS)
    return run_evaluation(loaded, request, lambda *_: None).images_per_second


ALTERNATIVES = {"plain timm loop": plain_timm_loop, "surgeon eval": surgeon_eval}
RATIOS = {
    f"{case}, {threads} thread{'s' * (threads > 1)}": partial(of_bare, case, threads)
    for case in CASES
    for threads in (1, 2)
}


def in_own_process(name: str) -> float:
    finished = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
    return float(finished.stdout.split()[-1])


def against_bare() -> bool:
    title = f"images/s, decoding included, best of {ROUNDS}: shares of the bare network's on tensors in memory"
    print(title)
    kept = [figure(title, f"surgeon eval, {name}", in_own_process(name), at_least=OF_BARE) for name in RATIOS]
    return all(kept)


def against_timm() -> bool:
    best = dict.fromkeys(ALTERNATIVES, 0.0)
    for _ in range(ROUNDS):
        for name in ALTERNATIVES:
            best[name] = max(best[name], in_own_process(name))
    ratio = best["surgeon eval"] / best["plain timm loop"]
    title = f"{MODEL}, {IMAGES} ImageNet images, decoding included, best of {ROUNDS}: images/s"
    print(title)
    for name, speed in best.items():
        print(f"  {name:<24}{speed:8.1f} images/s")
    return figure(title, "surgeon eval against a plain timm loop", ratio, at_least=WANTED)


def main() -> int:
    leave_unless_there()
    kept = against_bare()
    return 0 if against_timm() and kept else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print((ALTERNATIVES | RATIOS)[sys.argv[1]]())
    else:
        sys.exit(main())
