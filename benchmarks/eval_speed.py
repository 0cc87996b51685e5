"""`surgeon eval` against the loop that a user would write with timm: images/s, decoding included.

Each measurement has a process of its own, because surgeon changes how the process keeps its memory.
"""

from __future__ import annotations

import subprocess
import sys
import time

from real_data import IMAGENET, LITE0, leave_unless_there
from timing import figure

MODEL, SPLIT, IMAGES, BATCH, WORKERS = "tf_efficientnet_lite0", "validation", 500, 32, 2
ROUNDS, WANTED = 3, 2.5


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
    from surgeon.commands.evaluate import run_evaluation
    from surgeon.measuring.preparation import InferenceRequest

    loaded = open_model(MODEL, weights=LITE0)
    request = InferenceRequest(data=str(IMAGENET), split=SPLIT, limit=IMAGES, batch_size=BATCH, workers=WORKERS)
    return run_evaluation(loaded, request, lambda *_: None).images_per_second


ALTERNATIVES = {"plain timm loop": plain_timm_loop, "surgeon eval": surgeon_eval}


def in_own_process(name: str) -> float:
    finished = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
    return float(finished.stdout.split()[-1])


def main() -> int:
    leave_unless_there()
    best = dict.fromkeys(ALTERNATIVES, 0.0)
    for _ in range(ROUNDS):
        for name in ALTERNATIVES:
            best[name] = max(best[name], in_own_process(name))
    ratio = best["surgeon eval"] / best["plain timm loop"]
    title = f"{MODEL}, {IMAGES} ImageNet images, decoding included, best of {ROUNDS}: images/s"
    print(title)
    for name, speed in best.items():
        print(f"  {name:<24}{speed:8.1f} images/s")
    return 0 if figure(title, "surgeon eval against a plain timm loop", ratio, at_least=WANTED) else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(ALTERNATIVES[sys.argv[1]]())
    else:
        sys.exit(main())
