"""A training step with ghost and with batch-group normalisation against plain BatchNorm, in both memory formats."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from timing import best_times, report
from torch import nn
from torch.nn.functional import cross_entropy

import surgeon
from surgeon.cli.host import keep_heap
from surgeon.models.sources import load_model

NETWORKS = (("cifar-resnet20", 128, 32, 20), ("resnet18", 32, 112, 5), ("mobilenetv3_small_100", 32, 128, 10))
AIMS = {"ghost:size=8": 1.00, "ghost:size=16": 1.00, "ghost:size=32": 1.00, "batch-group:channel_groups=8": 1.15}
LIMITS = AIMS | dict.fromkeys((name for name in AIMS if name.startswith("ghost")), 1.08)


def training_step(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimiser.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimiser.step()

    return step


def main() -> int:
    keep_heap()
    kept = True
    for name, batch, size, rounds in NETWORKS:
        plain = load_model(name, pretrained=False).model.train()
        models = {"plain BatchNorm": plain} | {spec: surgeon.convert(plain, spec).train() for spec in LIMITS}
        for memory_format in (torch.contiguous_format, torch.channels_last):
            layout = "channels-last" if memory_format is torch.channels_last else "NCHW"
            images = torch.randn(batch, 3, size, size).contiguous(memory_format=memory_format)
            labels = torch.randint(10, (batch,))
            steps = {
                key: training_step(model.to(memory_format=memory_format), images, labels)
                for key, model in models.items()
            }
            title = f"{name}, {size} px, batch {batch}, {layout}, threads: {torch.get_num_threads()}: training step"
            kept &= report(title, best_times(steps, rounds), LIMITS, AIMS)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
