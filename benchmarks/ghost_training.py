"""A training step with ghost BatchNorm against plain BatchNorm."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from timing import best_times, report
from torch import nn
from torch.nn.functional import cross_entropy

import surgeon
from surgeon.models.sources import load_model

NETWORKS = (("cifar-resnet20", 128, 32, 20), ("resnet18", 32, 112, 5))
LIMIT = 1.05
REWRITES = {"ghost:size=16": LIMIT, "ghost:size=32": LIMIT, "batch-group:channel_groups=8": None}


def training_step(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimiser.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimiser.step()

    return step


def main() -> int:
    kept = True
    for name, batch, size, rounds in NETWORKS:
        plain = load_model(name, pretrained=False).model.train()
        models = {"plain BatchNorm": plain}
        models |= {rewrite: surgeon.convert(plain, rewrite).train() for rewrite in REWRITES}
        images, labels = torch.randn(batch, 3, size, size), torch.randint(10, (batch,))
        steps = {name: training_step(model, images, labels) for name, model in models.items()}
        limits = {rewrite: limit for rewrite, limit in REWRITES.items() if limit is not None}
        kept &= report(f"{name}, {size} px, batch {batch}: training step", best_times(steps, rounds), limits)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
