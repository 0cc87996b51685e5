"""Example-weighted and instance-aware evaluation against plain BatchNorm and activation: both memory formats.

Networks that are named as arguments are measured alone.
"""

from __future__ import annotations

import sys
from functools import partial

import timm
import torch
from timing import best_times, report

import surgeon
from surgeon.cli.host import keep_heap
from surgeon.layers import native

AIMS = {
    "efficientnet_b0": 1.00,
    "mobilenetv3_large_100": 1.00,
    "regnety_008": 1.00,
    "efficientnet_lite0": 1.00,
    "resnet50": 1.03,
    "densenet121": 1.03,
}
"""Where activations belong to the norm layers, they are computed in the same pass; ResNet-50 has them apart."""
MOST = {1: 1.12, 16: 1.08, 64: 1.08}
"""What we can hold, by the images of a batch."""
SIZE, BATCHES, THREADS = 224, {1: 40, 16: 6, 64: 3}, (1, 2)
SPECS = {
    "example-weighted, alpha 0.05": "example-weighted:alpha=0.05",
    "instance-aware, k 8": "instance-aware:k=8",
    "alpha 0 (no change: noise)": "example-weighted:alpha=0",
}
"""The aims are those of the first two."""


def main() -> int:
    keep_heap()
    print(f"torch {torch.__version__}, compiled kernels: {native.available()}")
    kept = True
    before = torch.get_num_threads()
    for name in sys.argv[1:] or AIMS:
        plain = timm.create_model(name).eval()
        models = {"plain BatchNorm": plain} | {key: surgeon.convert(plain, spec).eval() for key, spec in SPECS.items()}
        aims = dict.fromkeys(list(SPECS)[:2], AIMS[name])
        for memory_format in (torch.contiguous_format, torch.channels_last):
            layout = "channels-last" if memory_format is torch.channels_last else "NCHW"
            for model in models.values():
                model.to(memory_format=memory_format)
            for batch, rounds in BATCHES.items():
                images = torch.randn(batch, 3, SIZE, SIZE).to(memory_format=memory_format)
                for threads in THREADS:
                    torch.set_num_threads(threads)
                    with torch.inference_mode():
                        seconds = best_times({key: partial(model, images) for key, model in models.items()}, rounds)
                    title = f"{name}, {SIZE} px, batch {batch}, {layout}, threads: {threads}"
                    kept &= report(title, seconds, dict.fromkeys(aims, MOST[batch]), aims)
    torch.set_num_threads(before)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
