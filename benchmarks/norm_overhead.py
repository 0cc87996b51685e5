"""Example-weighted and instance-aware evaluation against plain BatchNorm: ResNet-50, batch 16 and 1, both layouts."""

from __future__ import annotations

import sys
from functools import partial

import timm
import torch
from timing import best_times, report

import surgeon
from surgeon.layers import native

MODEL, SIZE, BATCHES = "resnet50", 224, {16: 6, 1: 40}
LIMIT = 1.10


def main() -> int:
    plain = timm.create_model(MODEL).eval()
    weighted = surgeon.convert(plain, "example-weighted:alpha=0.05").eval()
    unweighted = surgeon.convert(plain, "example-weighted:alpha=0").eval()
    corrected = surgeon.convert(plain, "instance-aware:k=8").eval()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, compiled kernel: {native.available()}")
    kept = True
    for memory_format in (torch.contiguous_format, torch.channels_last):
        models = {
            "plain BatchNorm": plain,
            "example-weighted, alpha 0.05": weighted,
            "alpha 0": unweighted,
            "instance-aware, k 8": corrected,
        }
        for model in models.values():
            model.to(memory_format=memory_format)
        for batch, rounds in BATCHES.items():
            images = torch.randn(batch, 3, SIZE, SIZE).to(memory_format=memory_format)
            with torch.inference_mode():
                seconds = best_times({name: partial(model, images) for name, model in models.items()}, rounds)
            layout = "channels-last" if memory_format is torch.channels_last else "NCHW"
            limits = {"example-weighted, alpha 0.05": LIMIT, "alpha 0": LIMIT}
            kept &= report(f"{MODEL}, {SIZE} px, batch {batch}, {layout}", seconds, limits)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
